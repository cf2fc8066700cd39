//! What happens in a server at start and stop.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Setup {
    /// Shell script that runs as the user at every start. The server becomes ready when it has finished, even if it
    /// fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub script: Option<String>,

    /// Git repository that is cloned into the home before the script runs. An existing clone is not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<Repository>,

    /// Shell script that runs as the user before the server stops, within the termination grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub pre_stop: Option<String>,

    /// Replaces the startup files of the shells in the home, such as .bashrc, by those of the image (/etc/skel) at the
    /// first start. The old files are moved to the directory .startup-files-backup-TIME in the home. A home without
    /// files always gets those of the image.
    #[serde(default)]
    pub recreate_env: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Repository {
    /// URL of the repository, such as https://git.example.org/team/project.git or git@git.example.org:team/project.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(
        validation = Rule::new(
            "self.matches('^(https://|ssh://|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:)[A-Za-z0-9._~/@:%+=,-]+$')"
        ).message("url must start with https:// or ssh://, or have the form git@host:path, without spaces"),
        validation = Rule::new("!self.matches('^https://[^/]*@')")
            .message("url must not contain credentials; put a token into a Secret and reference it in env")
            .reason(Reason::FieldValueForbidden),
    )]
    pub url: String,

    /// Branch, tag or commit to check out. Defaults to the default branch of the repository.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_][A-Za-z0-9._/+-]*$') && !self.contains('..')")
        .message("ref must be the name of a branch, tag or commit, such as main or v1.2"))]
    pub reference: Option<String>,
}
