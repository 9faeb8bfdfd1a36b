/** The client has no such thing; the message says which. */
final class Absent extends RuntimeException {
    Absent(String reason) {
        super(reason);
    }
}
