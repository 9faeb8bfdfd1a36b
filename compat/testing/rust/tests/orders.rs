//! A test with a broker of txbroker: a rule for faults is set over HTTP, and the client and the journal are checked.
//! `cargo test`; TXBROKER is the command `txbroker`, if it is not on the PATH.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rskafka::chrono::DateTime;
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;
use serde_json::{json, Value};

/// A broker for tests. It ends with its standard input, which this process keeps open, and so also when this process is killed.
struct Broker {
    process: Child,
    bootstrap_servers: String,
    control: String,
}

impl Broker {
    fn start(topic: &str) -> Broker {
        let ready = std::env::temp_dir().join(format!("txbroker-ready-{}.json", std::process::id()));
        let mut process = Command::new(std::env::var("TXBROKER").unwrap_or("txbroker".into()))
            .args(["test-server", "--stop-with-input", "--topic", topic, "--ready-file"])
            .arg(&ready)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("txbroker is not installed: pip install txbroker");
        let begun = Instant::now();
        while !ready.exists() {
            assert!(process.try_wait().unwrap().is_none(), "the broker has ended");
            assert!(begun.elapsed() < Duration::from_secs(60), "the broker does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        let found: Value = serde_json::from_slice(&std::fs::read(&ready).unwrap()).unwrap();
        let text = |name: &str| found[name].as_str().unwrap().to_string();
        Broker { process, bootstrap_servers: text("bootstrap_servers"), control: text("control_url").replace("http://", "") }
    }

    /// A request to the control port, without a library for HTTP.
    fn control(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(&self.control).unwrap();
        let (host, body) = (&self.control, body.to_string());
        let head = format!("{method} /v1{path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, content) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{answer}");
        serde_json::from_str(content).unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }
}

#[tokio::test]
async fn an_order_is_stored_once_although_the_first_request_is_refused() {
    let broker = Broker::start("orders");
    let rule = broker.control("POST", "/rules", &json!({"api": "Produce", "topic": "orders", "action": "error", "error": "NOT_LEADER_OR_FOLLOWER"}));

    let client = ClientBuilder::new(vec![broker.bootstrap_servers.clone()]).build().await.unwrap();
    let orders = client.partition_client("orders", 0, UnknownTopicHandling::Retry).await.unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let timestamp = DateTime::from_timestamp_millis(now).unwrap();
    let order = Record { key: None, value: Some(b"order 1".to_vec()), headers: BTreeMap::new(), timestamp };
    orders.produce(vec![order], Compression::NoCompression).await.unwrap();

    let (records, _) = orders.fetch_records(0, 1..1_000_000, 1_000).await.unwrap();
    assert_eq!(records.iter().map(|each| each.record.value.as_deref()).collect::<Vec<_>>(), [Some(&b"order 1"[..])]);
    assert_eq!(orders.get_offset(OffsetAt::Latest).await.unwrap(), 1);
    assert_eq!(broker.control("GET", &format!("/rules/{}", rule["id"]), &json!({}))["hits"], 1);
    let journal = broker.control("GET", "/journal?since=0", &json!({}));
    let produced = journal["entries"].as_array().unwrap().iter().filter(|each| each["api"] == "Produce");
    assert_eq!(produced.map(|each| each["errors"].clone()).collect::<Vec<_>>(), [json!(["NOT_LEADER_OR_FOLLOWER"]), json!([])]);
}
