//! As little HTTP as it takes to ask a notebook server on our own loopback address.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(5);
const LONGEST: u64 = 1 << 20;

/// The body of a good answer. Version 1.0 of HTTP, so that the end of the answer is the end of the stream.
pub async fn get(port: u16, path: &str, token: &str) -> Result<Vec<u8>, String> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: token {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match timeout(LIMIT, ask).await {
        Ok(Ok(answer)) => body(&answer).map(<[u8]>::to_vec),
        Ok(Err(error)) => Err(format!("port {port} of this server: {error}")),
        Err(_) => Err(format!("port {port} of this server gave no answer within {} s", LIMIT.as_secs())),
    }
}

fn body(answer: &[u8]) -> Result<&[u8], String> {
    let odd = || "the notebook server does not speak HTTP".to_owned();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(odd)?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| odd())?;
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).ok_or_else(odd)?;
    match status {
        "200" => Ok(&answer[end + 4..]),
        other => Err(format!("the notebook server answers with status {}", other.chars().take(8).collect::<String>())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_a_good_answer_has_a_body() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n[]"), Ok(&b"[]"[..]));
        assert!(body(b"HTTP/1.1 403 Forbidden\r\n\r\n[]").unwrap_err().ends_with("status 403"));
        for odd in ["", "SSH-2.0-x\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
            assert_eq!(body(odd.as_bytes()), Err("the notebook server does not speak HTTP".to_owned()), "{odd}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_is_too_odd(answer in prop::collection::vec(any::<u8>(), 0..200), text in "HTTP/1[.0-9 \r\n]{0,40}") {
            let _ = body(&answer);
            let _ = body(text.as_bytes());
        }
    }
}
