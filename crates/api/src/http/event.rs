//! Events of servers, sent as server-sent events and over WebSocket.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Number of the event in this replica of the API.
    pub id: u64,
    #[serde(rename = "type")]
    pub kind: EventType,
    pub at: Time,
    /// Part of ODC that reported it.
    pub source: String,
    /// Owner of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Name of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What happened, depending on the type.
    pub data: Value,
}

macro_rules! event_types {
    ($($(#[doc = $doc:literal])+ $variant:ident, $name:literal, $source:literal;)*) => {
        /// The types of events. Those with the source `reserved` are not sent yet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum EventType {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)*
        }

        impl EventType {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the part of ODC that reports the event.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$variant => $source,)* }
            }
        }
    };
}

event_types! {
    /// A server exists when the stream starts.
    Initial, "initial", "watch of DevServers";
    /// All existing servers were sent.
    Synced, "synced", "watch of DevServers";
    /// A server was created.
    Created, "created", "watch of DevServers";
    /// The spec of a server was changed.
    Updated, "updated", "watch of DevServers";
    /// A server was deleted.
    Deleted, "deleted", "watch of DevServers";
    /// The phase of a server changed, or another part of its status.
    State, "state", "watch of DevServers";
    /// The server is idle.
    Idle, "idle", "condition Idle of the DevServer";
    /// The server is no longer idle.
    Active, "active", "condition Idle of the DevServer";
    /// Another user got access to the server.
    Shared, "shared", "spec.access.users of the DevServer";
    /// Another user lost access to the server.
    Unshared, "unshared", "spec.access.users of the DevServer";
    /// The server failed.
    Error, "error", "status.lastFailure of the DevServer";
    /// A client reported activity.
    Heartbeat, "heartbeat", "HTTP API of this replica";
    /// Events were dropped because the client reads too slowly. It should read the current state.
    Missed, "missed", "HTTP API";
    /// A user connected to the server.
    Connected, "connected", "reserved";
    /// A user disconnected from the server.
    Disconnected, "disconnected", "reserved";
    /// The use of resources changed.
    Resources, "resources", "reserved";
    /// The tags of the server changed.
    Tags, "tags", "reserved";
}
