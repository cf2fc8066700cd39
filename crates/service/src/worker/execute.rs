//! Executes requests: writes custom resources, and nothing else.
//!
//! A request can be executed several times, by this or another worker, also at the same time. Every object that a request
//! changes has its id in an annotation, so that a repeated change is recognized.

mod admin;
mod disk;
mod object;
mod server;

use kube::Client;
use odc_store::queue::{FinishResult, Work};

use super::answer::Outcome;
use super::decision::fail;
use crate::message::Message;
use object::Execution;

/// Executes a request.
pub async fn execute(client: &Client, work: &Work, message: &Message) -> Outcome {
    let execution = Execution::new(client, work);
    let executed = match message {
        Message::DevServerCreate(create) => server::create(&execution, create).await,
        Message::DevServerPatch(patch) => server::patch(&execution, patch).await,
        Message::DevServerExtend(extend) => server::extend(&execution, extend).await,
        Message::DevServerSetUser(set) => server::set_user(&execution, set).await,
        Message::DevServerDelete(delete) => server::delete(&execution, delete).await,
        Message::DiskCreate(create) => disk::create(&execution, create).await,
        Message::DiskPatch(patch) => disk::patch(&execution, patch).await,
        Message::DiskDelete(delete) => disk::delete(&execution, delete).await,
        Message::DiskOperationCreate(create) => disk::create_operation(&execution, create).await,
        Message::DiskOperationDelete(delete) => disk::delete_operation(&execution, delete).await,
        Message::UserApply(apply) => admin::apply(&execution, admin::Kind::User, apply).await,
        Message::UserDelete(delete) => admin::delete(&execution, admin::Kind::User, delete).await,
        Message::TeamApply(apply) => admin::apply(&execution, admin::Kind::Team, apply).await,
        Message::TeamDelete(delete) => admin::delete(&execution, admin::Kind::Team, delete).await,
        Message::FlavorApply(apply) => admin::apply(&execution, admin::Kind::Flavor, apply).await,
        Message::FlavorDelete(delete) => admin::delete(&execution, admin::Kind::Flavor, delete).await,
        Message::NodeOperationCreate(_) => {
            Err(Outcome::Finished(fail("NotImplemented", "Node operations are not implemented yet.")))
        }
    };
    match executed {
        Ok(()) => Outcome::Finished(FinishResult::Succeeded),
        Err(outcome) => outcome,
    }
}
