//! One client's connection: what the library asks is answered or handed on here. Nothing here waits for a process or a
//! file, because everything else on the connection would wait too.

mod attend;
mod direct;
mod request;
mod stranger;

pub use attend::attend;
pub use stranger::{Stranger, Strangers};

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use russh::keys::{Algorithm, Certificate};
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session as Link, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, Pty, Sig};
use tokio::sync::watch;

use crate::serve::access::Credential;
use crate::serve::activity::SessionMark;
use crate::serve::certificate::Principal;
use crate::serve::flow;
use crate::serve::forward::Target;
use crate::serve::forward::listen::{Client, Listeners};
use crate::serve::inbox::Inboxes;
use crate::serve::served::Served;
use crate::serve::session::process::Leaders;
use crate::serve::session::terminal::Size;
use crate::serve::session::{Session, Wanted};

pub struct Connection {
    served: Arc<Served>,
    peer: Peer,
    inboxes: Inboxes,
    login: watch::Sender<Option<Credential>>,
    sessions: HashMap<ChannelId, Session>,
    listeners: Listeners,
    leaders: Leaders,
    mark: Option<SessionMark>,
}

/// Both ends.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub client: SocketAddr,
    pub server: SocketAddr,
}

impl Connection {
    fn new(
        served: Arc<Served>,
        peer: Peer,
        inboxes: Inboxes,
        leaders: Leaders,
        login: watch::Sender<Option<Credential>>,
    ) -> Self {
        let (sessions, listeners) = (HashMap::new(), Listeners::default());
        Self { served, peer, inboxes, login, sessions, listeners, leaders, mark: None }
    }

    fn principal(&self) -> Option<Principal> {
        match *self.login.borrow() {
            None => None,
            Some(Credential::Key(_)) => Some(Principal::User),
            Some(Credential::Certificate { principal, .. }) => Some(principal),
        }
    }

    fn is_user(&self) -> bool {
        self.principal() == Some(Principal::User)
    }

    fn refuse(&self, user: &str, why: impl std::fmt::Display) -> Auth {
        let client = self.peer.client;
        self.served.journal.say(format!("refused {user:?} from {client}: {why}"));
        Auth::reject()
    }

    fn client(&self, link: &Link) -> Client {
        Client {
            handle: link.handle(),
            inboxes: self.inboxes.clone(),
            activity: Arc::clone(&self.served.activity),
            apart: self.served.apart.clone(),
        }
    }
}

impl Handler for Connection {
    type Error = russh::Error;

    /// As the administrator wants it, if at all.
    async fn authentication_banner(&mut self) -> Result<Option<String>, russh::Error> {
        let text = self.served.identity.banner.trim();
        Ok((!text.is_empty()).then(|| format!("{}\r\n", text.replace('\n', "\r\n"))))
    }

    /// Whether it is worth signing with. That a key comes with a certificate cannot be seen here, so as long as there is
    /// an authority that counts, all are.
    async fn auth_publickey_offered(&mut self, _: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        let lists = self.served.access.lists();
        let may_be_certified = !lists.user_cas.keys.is_empty() || !lists.control_cas.keys.is_empty();
        let with_sha1 = matches!(offer.algorithm, Algorithm::Rsa { hash: None });
        let worth = !with_sha1 && (may_be_certified || lists.keys.has(offer.public_key.key_data()));
        Ok(if worth { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let credential = Credential::Key(key.public_key.key_data().clone());
        if !self.served.access.lists().admits(&credential) {
            return Ok(self.refuse(user, format_args!("the {} key is not known", key.algorithm)));
        }
        self.login.send_replace(Some(credential));
        Ok(Auth::Accept)
    }

    async fn auth_openssh_certificate(&mut self, user: &str, certificate: &Certificate) -> Result<Auth, russh::Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        match self.served.access.judge(certificate, now, &self.served.identity.uid) {
            Ok(principal) => {
                let authority = certificate.signature_key().clone();
                self.login.send_replace(Some(Credential::Certificate { authority, principal }));
                Ok(Auth::Accept)
            }
            Err(reason) => Ok(self.refuse(user, format_args!("certificate {:?}: {reason}", certificate.key_id()))),
        }
    }

    async fn auth_succeeded(&mut self, _: &mut Link) -> Result<(), russh::Error> {
        // The operator's questions are nobody's work.
        self.mark = self.is_user().then(|| self.served.activity.session());
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Link,
    ) -> Result<(), russh::Error> {
        if !self.has_room() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        // Its other half would make the whole connection wait for whoever reads too slowly; see `flow`.
        let channel = channel.split().1;
        self.inboxes.open(channel.id());
        self.sessions.insert(channel.id(), Session::new(channel));
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
        link: &mut Link,
    ) -> Result<(), russh::Error> {
        let client = self.client(link);
        let Ok(port) = u16::try_from(port) else {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        };
        self.direct(channel, Target::Port { host: host.to_owned(), port }, reply, client).await
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        link: &mut Link,
    ) -> Result<(), russh::Error> {
        let client = self.client(link);
        self.direct(channel, Target::Socket(PathBuf::from(path)), reply, client).await
    }

    /// Of a channel that we opened. What comes on it next must have a place.
    async fn channel_open_confirmation(
        &mut self,
        id: ChannelId,
        _: u32,
        _: u32,
        _: &mut Link,
    ) -> Result<(), russh::Error> {
        self.inboxes.open(id);
        Ok(())
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], _: &mut Link) -> Result<(), russh::Error> {
        if let Some(inbox) = self.inboxes.get(id) {
            inbox.put(data);
        }
        Ok(())
    }

    fn adjust_window(&mut self, id: ChannelId, _: u32) -> u32 {
        let own = self.inboxes.get(id).map_or(0, |inbox| inbox.bytes());
        flow::window(own, self.inboxes.worst(), self.inboxes.len())
    }

    async fn channel_eof(&mut self, id: ChannelId, _: &mut Link) -> Result<(), russh::Error> {
        if let Some(inbox) = self.inboxes.get(id) {
            inbox.end();
        }
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Link) -> Result<(), russh::Error> {
        let session = self.sessions.remove(&id);
        if session.is_some_and(|session| session.channel.is_some()) {
            // Nothing was ever started.
            self.inboxes.remove(id);
        } else if let Some(inbox) = self.inboxes.get(id) {
            inbox.close();
        }
        Ok(())
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        kind: &str,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        modes: &[(Pty, u32)],
        link: &mut Link,
    ) -> Result<(), russh::Error> {
        let taken = self.open_terminal(id, kind, Size { columns, rows, width, height }, modes);
        answer(link, id, taken)
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        link: &mut Link,
    ) -> Result<(), russh::Error> {
        let terminal = self.sessions.get(&id).and_then(|session| session.terminal.as_ref());
        if let Some(terminal) = terminal {
            terminal.resize(Size { columns, rows, width, height });
        }
        answer(link, id, terminal.is_some())
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        link: &mut Link,
    ) -> Result<(), russh::Error> {
        let taken = self.sessions.get_mut(&id).is_some_and(|session| session.asked.set(name, value));
        answer(link, id, taken)
    }

    /// There is no screen in a server. The client says so and goes on.
    async fn x11_request(
        &mut self,
        id: ChannelId,
        _: bool,
        _: &str,
        _: &str,
        _: u32,
        link: &mut Link,
    ) -> Result<(), russh::Error> {
        answer(link, id, false)
    }

    async fn agent_request(&mut self, id: ChannelId, link: &mut Link) -> Result<bool, russh::Error> {
        let client = self.client(link);
        Ok(self.is_user() && self.open_agent(id, client).await)
    }

    async fn shell_request(&mut self, id: ChannelId, link: &mut Link) -> Result<(), russh::Error> {
        let started = self.is_user() && self.start(id, Wanted::Shell, link);
        answer(link, id, started)
    }

    async fn exec_request(&mut self, id: ChannelId, command: &[u8], link: &mut Link) -> Result<(), russh::Error> {
        let started = self.is_user() && self.start(id, Wanted::Command(command.to_vec()), link);
        answer(link, id, started)
    }

    async fn subsystem_request(&mut self, id: ChannelId, name: &str, link: &mut Link) -> Result<(), russh::Error> {
        let started = match (name, self.principal()) {
            ("sftp", Some(Principal::User)) => self.start_sftp(id, link),
            ("odc-control", Some(Principal::Control)) => self.start_control(id, link),
            _ => false,
        };
        answer(link, id, started)
    }

    async fn signal(&mut self, id: ChannelId, signal: Sig, link: &mut Link) -> Result<(), russh::Error> {
        if let Some(session) = self.sessions.get(&id) {
            session.signal(&signal);
        }
        answer(link, id, true)
    }

    async fn tcpip_forward(&mut self, address: &str, port: &mut u32, link: &mut Link) -> Result<bool, russh::Error> {
        if !self.is_user() {
            return Ok(false);
        }
        let client = self.client(link);
        let given = self.listeners.open_port(&client, address, *port).await;
        *port = *given.as_ref().unwrap_or(port);
        Ok(given.is_ok())
    }

    async fn cancel_tcpip_forward(&mut self, address: &str, port: u32, _: &mut Link) -> Result<bool, russh::Error> {
        Ok(self.listeners.close_port(address, port))
    }

    async fn streamlocal_forward(&mut self, path: &str, link: &mut Link) -> Result<bool, russh::Error> {
        if !self.is_user() {
            return Ok(false);
        }
        let client = self.client(link);
        Ok(self.listeners.open_socket(&client, path).await.is_ok())
    }

    async fn cancel_streamlocal_forward(&mut self, path: &str, _: &mut Link) -> Result<bool, russh::Error> {
        Ok(self.listeners.close_socket(&self.served.apart, path).await)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.inboxes.remove_all();
    }
}

/// If the client wants to know.
fn answer(link: &mut Link, id: ChannelId, yes: bool) -> Result<(), russh::Error> {
    if yes { link.channel_success(id) } else { link.channel_failure(id) }
}
