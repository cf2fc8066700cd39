//! Implements russh's `Handler`: answers the requests of one connection or passes them on. Nothing here waits for a
//! process or a file, because that would block all channels of the connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use russh::keys::{Algorithm, Certificate};
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, Pty, Sig};
use tokio::sync::watch;

use crate::serve::activity::SessionGuard;
use crate::serve::auth::access_list::Credential;
use crate::serve::auth::certificate::Principal;
use crate::serve::context::Context;
use crate::serve::forward::listener::{ForwardContext, Listeners};
use crate::serve::forward::relay::Target;
use crate::serve::session::process::SessionProcesses;
use crate::serve::session::pty::WindowSize;
use crate::serve::session::{SessionChannel, SessionRequest};
use crate::serve::ssh::flow_control;
use crate::serve::ssh::receive_buffer::ReceiveBuffers;

pub struct SshHandler {
    pub(super) ctx: Arc<Context>,
    pub(super) addresses: Addresses,
    pub(super) buffers: ReceiveBuffers,
    pub(super) login: watch::Sender<Option<Credential>>,
    pub(super) channels: HashMap<ChannelId, SessionChannel>,
    pub(super) listeners: Listeners,
    pub(super) processes: SessionProcesses,
    pub(super) session_guard: Option<SessionGuard>,
}

/// Both ends of the TCP connection.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub client: SocketAddr,
    pub server: SocketAddr,
}

impl SshHandler {
    pub(super) fn new(
        ctx: Arc<Context>,
        addresses: Addresses,
        buffers: ReceiveBuffers,
        processes: SessionProcesses,
        login: watch::Sender<Option<Credential>>,
    ) -> Self {
        let (channels, listeners) = (HashMap::new(), Listeners::default());
        Self { ctx, addresses, buffers, login, channels, listeners, processes, session_guard: None }
    }

    fn principal(&self) -> Option<Principal> {
        match *self.login.borrow() {
            None => None,
            Some(Credential::Key(_)) => Some(Principal::User),
            Some(Credential::Certificate { principal, .. }) => Some(principal),
        }
    }

    pub(super) fn is_user(&self) -> bool {
        self.principal() == Some(Principal::User)
    }

    fn reject(&self, user: &str, reason: impl std::fmt::Display) -> Auth {
        let client = self.addresses.client;
        self.ctx.logger.log(format!("rejected login of {user:?} from {client}: {reason}"));
        Auth::reject()
    }

    fn forward_context(&self, session: &Session) -> ForwardContext {
        ForwardContext {
            handle: session.handle(),
            buffers: self.buffers.clone(),
            activity: Arc::clone(&self.ctx.activity),
            blocking: self.ctx.blocking.clone(),
        }
    }
}

impl Handler for SshHandler {
    type Error = russh::Error;

    async fn authentication_banner(&mut self) -> Result<Option<String>, russh::Error> {
        let text = self.ctx.identity.banner.trim();
        Ok((!text.is_empty()).then(|| format!("{}\r\n", text.replace('\n', "\r\n"))))
    }

    /// Reports whether a signature with this key would be accepted. A certificate is not visible at this point, so any
    /// key is acceptable if the access list contains a CA.
    async fn auth_publickey_offered(&mut self, _: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        let keys = self.ctx.access.authorized_keys();
        let has_ca = !keys.user_cas.keys.is_empty() || !keys.control_cas.keys.is_empty();
        let uses_sha1 = matches!(offer.algorithm, Algorithm::Rsa { hash: None });
        let acceptable = !uses_sha1 && (has_ca || keys.user_keys.contains(offer.public_key.key_data()));
        Ok(if acceptable { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let credential = Credential::Key(key.public_key.key_data().clone());
        if !self.ctx.access.authorized_keys().allows(&credential) {
            return Ok(self.reject(user, format_args!("unknown {} key", key.algorithm)));
        }
        self.login.send_replace(Some(credential));
        Ok(Auth::Accept)
    }

    async fn auth_openssh_certificate(&mut self, user: &str, certificate: &Certificate) -> Result<Auth, russh::Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        match self.ctx.access.verify_certificate(certificate, now, &self.ctx.identity.uid) {
            Ok(principal) => {
                let authority = certificate.signature_key().clone();
                self.login.send_replace(Some(Credential::Certificate { authority, principal }));
                Ok(Auth::Accept)
            }
            Err(reason) => Ok(self.reject(user, format_args!("certificate {:?}: {reason}", certificate.key_id()))),
        }
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), russh::Error> {
        // The operator's connections do not count as user sessions.
        self.session_guard = self.is_user().then(|| self.ctx.activity.open_session());
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        if !self.can_open_channel() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        // The read half is dropped: russh would block the whole connection on a slow reader. See `flow_control`.
        let channel = channel.split().1;
        self.buffers.open(channel.id());
        self.channels.insert(channel.id(), SessionChannel::new(channel));
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let forward = self.forward_context(session);
        let Ok(port) = u16::try_from(port) else {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        };
        self.open_direct(channel, Target::Port { host: host.to_owned(), port }, reply, forward).await
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let forward = self.forward_context(session);
        self.open_direct(channel, Target::Socket(PathBuf::from(path)), reply, forward).await
    }

    /// Opens the receive buffer of a channel that this server has opened, before data arrives.
    async fn channel_open_confirmation(
        &mut self,
        id: ChannelId,
        _: u32,
        _: u32,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        self.buffers.open(id);
        Ok(())
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], _: &mut Session) -> Result<(), russh::Error> {
        if let Some(buffer) = self.buffers.get(id) {
            buffer.push(data);
        }
        Ok(())
    }

    fn adjust_window(&mut self, id: ChannelId, _: u32) -> u32 {
        let buffered = self.buffers.get(id).map_or(0, |buffer| buffer.bytes());
        flow_control::window_size(buffered, self.buffers.largest(), self.buffers.len())
    }

    async fn channel_eof(&mut self, id: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        if let Some(buffer) = self.buffers.get(id) {
            buffer.set_eof();
        }
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        let channel = self.channels.remove(&id);
        if channel.is_some_and(|channel| channel.writer.is_some()) {
            // No process was started that would remove the buffer.
            self.buffers.remove(id);
        } else if let Some(buffer) = self.buffers.get(id) {
            buffer.close();
        }
        Ok(())
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        term: &str,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let opened = self.open_pty(id, term, WindowSize { columns, rows, width, height }, modes);
        reply(session, id, opened)
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let pty = self.channels.get(&id).and_then(|channel| channel.pty.as_ref());
        if let Some(pty) = pty {
            pty.resize(WindowSize { columns, rows, width, height });
        }
        reply(session, id, pty.is_some())
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let accepted = self.channels.get_mut(&id).is_some_and(|channel| channel.client_env.set(name, value));
        reply(session, id, accepted)
    }

    /// X11 forwarding is not supported.
    async fn x11_request(
        &mut self,
        id: ChannelId,
        _: bool,
        _: &str,
        _: &str,
        _: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        reply(session, id, false)
    }

    async fn agent_request(&mut self, id: ChannelId, session: &mut Session) -> Result<bool, russh::Error> {
        let forward = self.forward_context(session);
        Ok(self.is_user() && self.open_agent_socket(id, forward).await)
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        let started = self.is_user() && self.start(id, SessionRequest::Shell, session);
        reply(session, id, started)
    }

    async fn exec_request(&mut self, id: ChannelId, command: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        let started = self.is_user() && self.start(id, SessionRequest::Exec(command.to_vec()), session);
        reply(session, id, started)
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let started = match (name, self.principal()) {
            ("sftp", Some(Principal::User)) => self.start_sftp(id, session),
            ("odc-control", Some(Principal::Control)) => self.start_control(id, session),
            _ => false,
        };
        reply(session, id, started)
    }

    async fn signal(&mut self, id: ChannelId, signal: Sig, session: &mut Session) -> Result<(), russh::Error> {
        if let Some(channel) = self.channels.get(&id) {
            channel.signal(&signal);
        }
        reply(session, id, true)
    }

    async fn tcpip_forward(
        &mut self,
        address: &str,
        port: &mut u32,
        session: &mut Session,
    ) -> Result<bool, russh::Error> {
        if !self.is_user() {
            return Ok(false);
        }
        let forward = self.forward_context(session);
        let bound = self.listeners.open_port(&forward, address, *port).await;
        *port = *bound.as_ref().unwrap_or(port);
        Ok(bound.is_ok())
    }

    async fn cancel_tcpip_forward(&mut self, address: &str, port: u32, _: &mut Session) -> Result<bool, russh::Error> {
        Ok(self.listeners.close_port(address, port))
    }

    async fn streamlocal_forward(&mut self, path: &str, session: &mut Session) -> Result<bool, russh::Error> {
        if !self.is_user() {
            return Ok(false);
        }
        let forward = self.forward_context(session);
        Ok(self.listeners.open_socket(&forward, path).await.is_ok())
    }

    async fn cancel_streamlocal_forward(&mut self, path: &str, _: &mut Session) -> Result<bool, russh::Error> {
        Ok(self.listeners.close_socket(&self.ctx.blocking, path).await)
    }
}

impl Drop for SshHandler {
    fn drop(&mut self) {
        self.buffers.remove_all();
    }
}

/// Replies to a channel request, if the client wants a reply.
fn reply(session: &mut Session, id: ChannelId, success: bool) -> Result<(), russh::Error> {
    if success { session.channel_success(id) } else { session.channel_failure(id) }
}
