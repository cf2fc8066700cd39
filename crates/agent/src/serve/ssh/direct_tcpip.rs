//! Channels that a client opens to a port or socket in the server: `direct-tcpip` (RFC 4254, section 7.2) and OpenSSH's
//! `direct-streamlocal`.

use russh::server::{ChannelOpenHandle, Msg};
use russh::{Channel, ChannelOpenFailure};

use crate::serve::forward::listener::ForwardContext;
use crate::serve::forward::relay::{ByteCounter, Target, relay};
use crate::serve::ssh::handler::SshHandler;

/// Per connection, of all types.
const MAX_CHANNELS: usize = 200;

impl SshHandler {
    /// Reports whether the connection may open one more channel.
    pub(super) fn can_open_channel(&mut self) -> bool {
        self.channels.retain(|id, _| self.buffers.get(*id).is_some());
        self.buffers.len() < MAX_CHANNELS
    }

    pub(super) async fn open_direct(
        &mut self,
        channel: Channel<Msg>,
        target: Target,
        reply: ChannelOpenHandle,
        forward: ForwardContext,
    ) -> Result<(), russh::Error> {
        if !self.is_user() {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        }
        if !self.can_open_channel() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let ForwardContext { handle, buffers, activity, blocking } = forward;
        // Opened before the connection is established, so that pending connections count towards the limit.
        buffers.open(channel.id());
        tokio::spawn(async move {
            let counter = ByteCounter { activity, port: Some(target.port()) };
            if let Ok(upstream) = target.connect(&blocking).await {
                reply.accept().await;
                relay(channel, handle, buffers, upstream, counter).await;
            } else {
                buffers.remove(channel.id());
                reply.reject(ChannelOpenFailure::ConnectFailed).await;
            }
        });
        Ok(())
    }
}
