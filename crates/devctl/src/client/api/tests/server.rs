//! An HTTP server with given answers, which records the requests.

use std::sync::Mutex;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What the server does with a request.
pub enum Answer {
    /// Closes the connection without a response.
    Close,
    Response {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
}

impl Answer {
    pub fn json(status: u16, body: &Value) -> Self {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Self::Response { status, headers: vec![("content-type".to_owned(), "application/json".to_owned())], body }
    }

    /// A response that ends with the connection.
    pub fn stream(media_type: &str, body: &str) -> Self {
        Self::Response {
            status: 200,
            headers: vec![("content-type".to_owned(), media_type.to_owned())],
            body: body.to_owned(),
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Self::Response { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

#[derive(Debug)]
pub struct Received {
    pub method: String,
    pub uri: String,
    headers: Vec<(String, String)>,
    /// `Null` without a body.
    pub body: Value,
}

impl Received {
    /// Returns a header, empty if it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..]).unwrap_or_default()
    }
}

pub struct Server {
    pub url: String,
    requests: Mutex<mpsc::UnboundedReceiver<Received>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts a server that gives each answer once, in this order.
    pub async fn start(answers: Vec<Answer>) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            for answer in answers {
                let (stream, _) = listener.accept().await.unwrap();
                sender.send(serve(stream, answer).await).unwrap();
            }
        });
        Self { url, requests: Mutex::new(requests), task }
    }

    /// Returns the next request that was received.
    pub fn next(&self) -> Received {
        self.requests.lock().unwrap().try_recv().expect("a request")
    }

    /// Reports whether all received requests were taken.
    pub fn is_done(&self) -> bool {
        self.requests.lock().unwrap().try_recv().is_err()
    }
}

/// Reads one request and answers it. Each connection serves one request.
async fn serve(stream: TcpStream, answer: Answer) -> Received {
    let mut stream = BufReader::new(stream);
    let mut lines = vec![];
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut words = lines[0].split(' ').map(str::to_owned);
    let (method, uri) = (words.next().unwrap(), words.next().unwrap());
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut received = Received { method, uri, headers, body: Value::Null };
    let length: usize = received.header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    if length > 0 {
        received.body = serde_json::from_slice(&body).unwrap();
    }
    if let Answer::Response { status, headers, body } = answer {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let response = format!("HTTP/1.1 {status} Status\r\nconnection: close\r\n{headers}\r\n{body}");
        stream.write_all(response.as_bytes()).await.unwrap();
        let _ = stream.shutdown().await;
    }
    received
}
