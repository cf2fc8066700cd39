//! Forwards a watch event by event.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;

use crate::apifault::event::{Event, LineBuffer, expired};
use crate::apifault::plan::EventAction;
use crate::apifault::proxy::{Exchange, Proxy};
use crate::apifault::request::Verb;
use crate::apifault::response::Body;

/// Returns the body for the client. Dropping it, when the client disconnects, ends the watch at the API server.
pub fn forward(proxy: Arc<Proxy>, exchange: Exchange, body: kube::client::Body) -> Body {
    if exchange.request.verb != Verb::Watch {
        return body.map_err(anyhow::Error::from).boxed_unsync();
    }
    let watch =
        WatchStream { proxy, exchange, source: Some(body), lines: LineBuffer::default(), pending: VecDeque::new() };
    let frames = stream::try_unfold(watch, async |mut watch| {
        let chunk = watch.next().await?;
        Ok(chunk.map(|chunk| (Frame::data(chunk), watch)))
    });
    StreamBody::new(frames).boxed_unsync()
}

struct WatchStream {
    proxy: Arc<Proxy>,
    exchange: Exchange,
    /// `None` after the end of the watch.
    source: Option<kube::client::Body>,
    lines: LineBuffer,
    /// Lines received and not yet processed.
    pending: VecDeque<Bytes>,
}

impl WatchStream {
    /// Returns the next bytes for the client.
    async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        loop {
            while let Some(line) = self.pending.pop_front() {
                if let Some(line) = self.apply_fault(line).await {
                    return Ok(Some(line));
                }
            }
            let Some(source) = &mut self.source else { return Ok(None) };
            if let Some(frame) = source.frame().await.transpose()? {
                let data = frame.into_data().unwrap_or_default();
                self.pending.extend(self.lines.push(&data));
            } else {
                self.source = None;
                self.pending.extend(self.lines.take_partial());
            }
        }
    }

    async fn apply_fault(&mut self, line: Bytes) -> Option<Bytes> {
        let Some(event) = Event::parse(&line) else { return Some(line) };
        match self.proxy.handle_event(&self.exchange, &event).await {
            None | Some(EventAction::Hold) => Some(line),
            Some(EventAction::Drop) => None,
            Some(EventAction::Repeat) => Some(Bytes::from([line.as_ref(), line.as_ref()].concat())),
            Some(EventAction::Expire) => {
                self.source = None;
                self.pending.clear();
                Some(expired())
            }
        }
    }
}
