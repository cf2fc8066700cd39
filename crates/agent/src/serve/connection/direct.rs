//! Channels that a client opens to somewhere in the server.

use russh::server::{ChannelOpenHandle, Msg};
use russh::{Channel, ChannelOpenFailure};

use crate::serve::connection::Connection;
use crate::serve::forward::listen::Client;
use crate::serve::forward::{Count, Target, carry};

/// On one connection, of whatever kind.
const MOST_CHANNELS: usize = 200;

impl Connection {
    /// Whether there is room for one more channel.
    pub(super) fn has_room(&mut self) -> bool {
        self.sessions.retain(|id, _| self.inboxes.get(*id).is_some());
        self.inboxes.len() < MOST_CHANNELS
    }

    pub(super) async fn direct(
        &mut self,
        channel: Channel<Msg>,
        target: Target,
        reply: ChannelOpenHandle,
        client: Client,
    ) -> Result<(), russh::Error> {
        if !self.is_user() {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        }
        if !self.has_room() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let Client { handle, inboxes, activity, apart } = client;
        // Held from now on, so that waiting connections count.
        inboxes.open(channel.id());
        tokio::spawn(async move {
            let count = Count { activity, port: Some(target.port()) };
            if let Ok(link) = target.connect(&apart).await {
                reply.accept().await;
                carry(channel, handle, inboxes, link, count).await;
            } else {
                inboxes.remove(channel.id());
                reply.reject(ChannelOpenFailure::ConnectFailed).await;
            }
        });
        Ok(())
    }
}
