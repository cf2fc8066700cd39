//! What runs when a server starts and stops.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Setup {
    /// A shell script that runs as you, in the background, each time the server starts. The prompt shows its progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub script: Option<String>,

    /// A Git repository to have in the home before the script runs. An existing copy is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<Repository>,

    /// A shell script that runs as you before the server stops, for at most the time a stop may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub pre_stop: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Repository {
    /// The repository's address, such as https://git.example.org/team/project.git or git@git.example.org:team/project.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(
        validation = Rule::new(
            "self.matches('^(https://|ssh://|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:)[A-Za-z0-9._~/@:%+=,-]+$')"
        ).message("give an address that begins with https:// or ssh://, or one like git@host:path, without spaces"),
        validation = Rule::new("!self.matches('^https://[^/]*@')")
            .message("leave names and passwords out of the address; put a token into a Secret and name it in env")
            .reason(Reason::FieldValueForbidden),
    )]
    pub url: String,

    /// The branch, tag or commit to check out. Leave it out to get the repository's default branch.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_][A-Za-z0-9._/+-]*$') && !self.contains('..')")
        .message("give the plain name of a branch, tag or commit, such as main or v1.2"))]
    pub reference: Option<String>,
}
