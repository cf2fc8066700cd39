//! Writes of which nobody knows whether they were stored, because no answer came. Nothing is decided until that is known:
//! what was granted may be granted already, and a watch can be late.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Api;
use odc_api::v1alpha1::DevServer;
use odc_core::object::Kind;

use crate::cache::Key;
use crate::context::Context;
use crate::error::Error;
use crate::follow::version;
use crate::own::Copied as _;
use crate::request::in_time;
use crate::snapshot::Decided;

/// Servers by their uid.
#[derive(Default)]
pub struct Unsure(HashMap<String, Key>);

impl Unsure {
    pub fn note(&mut self, uid: &str, server: Key) {
        self.0.insert(uid.to_owned(), server);
    }

    /// Asks for each how it is. Whoever is gone, or cannot be read, was not granted anything that counts.
    pub async fn ask(&mut self, ctx: &Context, decided: &mut Decided) -> Result<(), Error> {
        while let Some((uid, (namespace, name))) = self.0.iter().next().map(|(uid, key)| (uid.clone(), key.clone())) {
            let lists = DevServer::lists(ctx);
            let api: Api<DevServer> = Api::namespaced(ctx.client.clone(), &namespace);
            let found = match in_time(api.get_opt(&name)).await {
                Ok(found) => found,
                Err(kube::Error::SerdeError(_)) => None,
                Err(source) => {
                    let name = format!("{namespace}/{name}");
                    return Err(Error::Read { kind: Kind::DevServer, name, source: Box::new(source) });
                }
            };
            if let Some(server) = found.filter(|server| server.metadata.uid.as_deref() == Some(&uid)) {
                server.remember(ctx, lists);
                let version = version(&server);
                decided.insert(uid.clone(), (Arc::new(server), version));
            }
            self.0.remove(&uid);
        }
        Ok(())
    }
}
