//! Passes a watch on, event by event, as they come.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;

use crate::apifault::answer::Body;
use crate::apifault::call::Verb;
use crate::apifault::event::{Event, Lines, expired};
use crate::apifault::plan::EventAction;
use crate::apifault::proxy::{Passage, Proxy};

/// The body for the client. Dropping it, as happens when the client goes away, ends the watch at the API server.
pub fn events(proxy: Arc<Proxy>, passage: Passage, body: kube::client::Body) -> Body {
    if passage.call.verb != Verb::Watch {
        return body.map_err(anyhow::Error::from).boxed_unsync();
    }
    let passing = Passing { proxy, passage, source: Some(body), lines: Lines::default(), waiting: VecDeque::new() };
    let frames = stream::try_unfold(passing, async |mut passing| {
        let piece = passing.next().await?;
        Ok(piece.map(|piece| (Frame::data(piece), passing)))
    });
    StreamBody::new(frames).boxed_unsync()
}

struct Passing {
    proxy: Arc<Proxy>,
    passage: Passage,
    /// Nothing after its end.
    source: Option<kube::client::Body>,
    lines: Lines,
    /// Lines that have come and not been looked at.
    waiting: VecDeque<Bytes>,
}

impl Passing {
    /// What the client gets next.
    async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        loop {
            while let Some(line) = self.waiting.pop_front() {
                if let Some(line) = self.judge(line).await {
                    return Ok(Some(line));
                }
            }
            let Some(source) = &mut self.source else { return Ok(None) };
            if let Some(frame) = source.frame().await.transpose()? {
                let data = frame.into_data().unwrap_or_default();
                self.waiting.extend(self.lines.push(&data));
            } else {
                self.source = None;
                self.waiting.extend(self.lines.rest());
            }
        }
    }

    async fn judge(&mut self, line: Bytes) -> Option<Bytes> {
        let Some(event) = Event::read(&line) else { return Some(line) };
        match self.proxy.event(&self.passage, &event).await {
            None | Some(EventAction::Hold) => Some(line),
            Some(EventAction::Drop) => None,
            Some(EventAction::Repeat) => Some(Bytes::from([line.as_ref(), line.as_ref()].concat())),
            Some(EventAction::Expire) => {
                self.source = None;
                self.waiting.clear();
                Some(expired())
            }
        }
    }
}
