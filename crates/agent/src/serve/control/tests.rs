use std::sync::OnceLock;

use odc_control::{About, Access, IdleAction, IdleTerms, JupyterState, Signals, read_reply, write_request};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::*;
use crate::serve::activity::Activity;
use crate::serve::apart::Apart;
use crate::serve::served::{Directory, Identity};
use crate::serve::steward::{Settings, Steward};
use crate::serve::terminals::Terminals;

const CA: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7hP0nCkmRMlIzbQ1SxNDVHPV2cQbGuEIFm8KWNPVlT";

struct Place {
    _directory: TempDir,
    served: Arc<Served>,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let (state, home) = (directory.path().join("state"), directory.path().join("home"));
    std::fs::create_dir_all(&state).unwrap();
    std::fs::create_dir_all(&home).unwrap();
    let settings = Settings { state: state.clone(), home, pre_stop: None, server: "ada-1".to_owned(), jupyter_port: 1 };
    let name = str::to_owned;
    let served = Served {
        activity: Arc::new(Activity::new()),
        access: crate::serve::access::Access::begin(&state, &[], &state, None).0,
        terminals: Terminals::default(),
        identity: Identity {
            server: name("ada-1"),
            owner: name("ada"),
            flavor: name("h100"),
            uid: name("u"),
            banner: name(""),
        },
        directory: Directory::new(state),
        journal: Arc::default(),
        expires_in: OnceLock::new(),
        steward: Steward::new(settings, &Arc::default()),
        apart: Apart::default(),
    };
    Place { _directory: directory, served: Arc::new(served) }
}

struct Client {
    stream: DuplexStream,
    frames: Frames,
    server: JoinHandle<io::Result<()>>,
}

impl Client {
    fn new(place: &Place) -> Self {
        let (stream, theirs) = duplex(1 << 10);
        let server = tokio::spawn(serve(theirs, Arc::clone(&place.served)));
        Self { stream, frames: Frames::default(), server }
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn hear(&mut self) -> Option<Reply> {
        let mut piece = [0; 4096];
        loop {
            if let Some(line) = self.frames.take().unwrap() {
                return Some(read_reply(&line).unwrap());
            }
            match self.stream.read(&mut piece).await.unwrap() {
                0 => return None,
                count => self.frames.push(&piece[..count]),
            }
        }
    }

    async fn ask(&mut self, request: Request) -> Reply {
        self.say(&write_request(&request).unwrap()).await;
        self.hear().await.unwrap()
    }

    async fn end(self) {
        drop(self.stream);
        self.server.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn every_request_is_answered() {
    let place = place();
    let mut client = Client::new(&place);
    place.served.activity.terminal_input();
    let Reply::Signals(signals) = client.ask(Request::Signals).await else { panic!() };
    assert_eq!(signals.terminal_input.last_seen_seconds_ago, Some(0));

    let idle = Some(IdleTerms { limit_seconds: 1800, action: IdleAction::Hibernate });
    assert_eq!(client.ask(Request::SetDeadline { remaining_seconds: Some(7200), idle }).await, Reply::Done);
    let locked_out = Access { keys: vec![CA.to_owned()], ..Access::default() };
    let Reply::Refused { reason } = client.ask(Request::SetAccess(locked_out)).await else { panic!() };
    assert!(reason.starts_with("no control CA in the list can be used"), "{reason}");
    let access = Access { keys: vec!["nonsense".to_owned()], control_cas: vec![CA.to_owned()], ..Access::default() };
    let Reply::AccessSet { unusable } = client.ask(Request::SetAccess(access.clone())).await else { panic!() };
    assert!(unusable[0].starts_with("key in line 1: "), "{unusable:?}");
    assert_eq!(place.served.access.current(), access);
    assert_eq!(client.ask(Request::TellIdle { verdict: "in use".into() }).await, Reply::Done);
    let hello = Request::Notify { about: About::Message, text: Some("hello".into()) };
    assert_eq!(client.ask(hello).await, Reply::Done);
    let reason = Some("training".into());
    assert_eq!(client.ask(Request::KeepAlive { seconds: 3600, reason }).await, Reply::Done);
    assert_eq!(client.ask(Request::Heartbeat { source: None }).await, Reply::Done);

    let Reply::Status(status) = client.ask(Request::Status).await else { panic!() };
    assert_eq!((status.server.as_str(), status.flavor.as_str(), status.idle), ("ada-1", "h100", idle));
    assert!(matches!(status.remaining_seconds, Some(7190..=7200)));
    assert_eq!((status.verdict.as_deref(), status.verdict_seconds_ago), (Some("in use"), Some(0)));
    assert_eq!(status.notices, ["hello".into()]);
    assert_eq!(status.jupyter.state, JupyterState::Off);
    let Signals { keep_alive, heartbeat, .. } = status.signals;
    assert_eq!(keep_alive.unwrap().reason.as_deref(), Some("training"));
    assert_eq!(heartbeat.last_seen_seconds_ago, Some(0));

    assert!(matches!(client.ask(Request::Stats).await, Reply::Stats(_)));
    let Reply::Quiesced(quiesced) = client.ask(Request::Quiesce { within_seconds: 60 }).await else { panic!() };
    assert!(quiesced.synced && quiesced.pre_stop.is_none());
    assert!(quiesced.listing.unwrap().starts_with("      0 B  ./\n"));
    client.end().await;
}

#[tokio::test]
async fn what_is_not_understood_is_refused_and_the_talk_goes_on() {
    let place = place();
    let mut client = Client::new(&place);
    client.say(b"hello\n{\"version\":9}\n{\"version\":1,\"request\":{\"type\":\"dance\"}}\n").await;
    for expect in ["this is no message", "version 9 is not known", "the request \"dance\" is not known"] {
        let Some(Reply::Refused { reason }) = client.hear().await else { panic!() };
        assert!(reason.starts_with(expect), "{reason}");
    }
    let day = 24 * 3600;
    assert_eq!(client.ask(Request::KeepAlive { seconds: day, reason: None }).await, Reply::Done);
    let Reply::Refused { reason } = client.ask(Request::KeepAlive { seconds: day + 1, reason: None }).await else {
        panic!()
    };
    assert_eq!(reason.as_str(), "a server can be kept alive for 1 d at most; ask again later");
    client.end().await;
}

#[tokio::test]
async fn a_line_without_end_ends_the_talk() {
    let place = place();
    let mut client = Client::new(&place);
    let long = vec![b'x'; odc_control::LONGEST + 1];
    client.say(&long).await;
    assert!(matches!(client.hear().await, Some(Reply::Refused { .. })));
    assert_eq!(client.hear().await, None);
    client.server.await.unwrap().unwrap();
}

#[tokio::test]
async fn half_a_request_is_no_request() {
    let place = place();
    let mut client = Client::new(&place);
    client.say(br#"{"version":1,"request":{"type":"sta"#).await;
    client.end().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_that_arrives_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let place = place();
            let mut client = Client::new(&place);
            client.say(&bytes).await;
            client.say(b"\n").await;
            assert!(matches!(client.hear().await, Some(Reply::Refused { .. })));
            client.end().await;
        });
    }
}
