/** The client lacks this feature; the message says which. */
final class Absent extends RuntimeException {
    Absent(String reason) {
        super(reason);
    }
}
