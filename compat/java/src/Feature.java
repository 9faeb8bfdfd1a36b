/** One column of the table: throws Absent where the client has no such thing, and whatever else is wrong. */
interface Feature {
    void run(Cluster cluster, String topic) throws Exception;
}
