//! The subsystem `odc-control`, which only the control principal reaches.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::serve::served::Served;

pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send, served: Arc<Served>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let reply = match serde_json::from_str::<odc_control::Access>(&line) {
            Ok(list) => match served.access.set(list) {
                Ok(changed) => format!("{changed:?}\n"),
                Err(refused) => format!("{refused}\n"),
            },
            Err(error) => format!("{error}\n"),
        };
        stream.write_all(reply.as_bytes()).await?;
        line.clear();
    }
    Ok(())
}
