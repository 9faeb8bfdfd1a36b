/** One column of the table: throws Absent where the client lacks this feature, and any exception if the feature does not work. */
interface Feature {
    void run(Cluster cluster, String topic) throws Exception;
}
