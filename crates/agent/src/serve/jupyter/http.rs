//! A minimal HTTP/1.0 client for the Jupyter server on loopback. A full HTTP library would add more to the size of the
//! agent than this one request needs.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_RESPONSE_BYTES: u64 = 1 << 20;

/// Returns the body of a response with status 200. With HTTP/1.0, the response ends at EOF.
pub async fn get(port: u16, path: &str, token: &str) -> Result<Vec<u8>, String> {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: token {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response).await?;
        Ok::<_, std::io::Error>(response)
    };
    match timeout(REQUEST_TIMEOUT, exchange).await {
        Ok(Ok(response)) => parse_response(&response).map(<[u8]>::to_vec),
        Ok(Err(error)) => Err(format!("cannot query Jupyter on port {port}: {error}")),
        Err(_) => Err(format!("Jupyter on port {port} did not respond within {}s", REQUEST_TIMEOUT.as_secs())),
    }
}

/// Returns the body of a successful response.
fn parse_response(response: &[u8]) -> Result<&[u8], String> {
    let not_http = || "invalid HTTP response from Jupyter".to_owned();
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(not_http)?;
    let head = std::str::from_utf8(&response[..end]).map_err(|_| not_http())?;
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).ok_or_else(not_http)?;
    match status {
        "200" => Ok(&response[end + 4..]),
        other => Err(format!("Jupyter responded with status {}", other.chars().take(8).collect::<String>())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_status_200_has_a_body() {
        assert_eq!(parse_response(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n[]"), Ok(&b"[]"[..]));
        assert!(parse_response(b"HTTP/1.1 403 Forbidden\r\n\r\n[]").unwrap_err().ends_with("status 403"));
        for invalid in ["", "SSH-2.0-x\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
            assert_eq!(
                parse_response(invalid.as_bytes()),
                Err("invalid HTTP response from Jupyter".to_owned()),
                "{invalid}"
            );
        }
    }

    proptest! {
        #[test]
        fn arbitrary_response_does_not_panic(response in prop::collection::vec(any::<u8>(), 0..200), text in "HTTP/1[.0-9 \r\n]{0,40}") {
            let _ = parse_response(&response);
            let _ = parse_response(text.as_bytes());
        }
    }
}
