//! Writes without a response, which may have been stored. Planning waits until those objects are read again, because a
//! server could be admitted twice and the watch can be late.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Api;
use odc_api::v1alpha1::DevServer;

use super::snapshot::AssumedAdmissions;
use crate::cache::assumed::AssumeInCache as _;
use crate::cache::{Key, version};
use crate::context::Context;
use crate::dynamic_api::with_timeout;
use crate::error::Error;

/// Servers by uid.
#[derive(Default)]
pub struct UncertainWrites(HashMap<String, Key>);

impl UncertainWrites {
    pub fn insert(&mut self, uid: &str, server: Key) {
        self.0.insert(uid.to_owned(), server);
    }

    /// Reads all servers with uncertain writes. Servers that were deleted or are invalid have no admission that counts.
    pub async fn resolve(&mut self, ctx: &Context, assumed: &mut AssumedAdmissions) -> Result<(), Error> {
        while let Some((uid, (namespace, name))) = self.0.iter().next().map(|(uid, key)| (uid.clone(), key.clone())) {
            let relists = DevServer::relists(ctx);
            let api: Api<DevServer> = Api::namespaced(ctx.client.clone(), &namespace);
            let stored = match with_timeout(api.get_opt(&name)).await {
                Ok(stored) => stored,
                Err(kube::Error::SerdeError(_)) => None,
                Err(source) => {
                    let name = format!("{namespace}/{name}");
                    return Err(Error::Read { kind: "DevServer", name, source: Box::new(source) });
                }
            };
            if let Some(server) = stored.filter(|server| server.metadata.uid.as_deref() == Some(&uid)) {
                server.assume(ctx, relists);
                let version = version(&server);
                assumed.insert(uid.clone(), (Arc::new(server), version));
            }
            self.0.remove(&uid);
        }
        Ok(())
    }
}
