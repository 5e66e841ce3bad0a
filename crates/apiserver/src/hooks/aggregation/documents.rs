//! The documents of an aggregated server: read now and again, each bounded in size and time.

use std::sync::Arc;
use std::time::Duration;

use access::UserInfo;
use api::Text;
use http::StatusCode;

use crate::aggregated::{
    APIS, Backend, Discovered, Fetched, Served, Specification, aggregator, get, index_entry, legacy, list,
    of_list, specification,
};

/// How long discovery may be, in bytes.
const DISCOVERY: usize = 2 << 20;
/// How long a document of OpenAPI may be, in bytes.
const OPENAPI: usize = 8 << 20;
/// How long discovery may take; upstream's.
const DISCOVERY_TIME: Duration = Duration::from_secs(5);
/// How long a document of OpenAPI may take; upstream's.
const OPENAPI_TIME: Duration = Duration::from_mins(1);

/// The findings about a server, for one group version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Documents {
    pub(super) discovered: Arc<Discovered>,
    pub(super) v2: Option<Arc<Specification>>,
    pub(super) v3: Option<Text>,
}

/// Reads the documents of a server.
pub(super) struct Reader {
    backend: Arc<Backend>,
    group: Text,
    version: Text,
    tags: Tags,
    pub(super) known: Documents,
}

/// The tags of the documents that are known.
#[derive(Default)]
struct Tags {
    apis: String,
    v2: String,
    v3: String,
}

impl Reader {
    pub(super) fn new(backend: Arc<Backend>, group: Text, version: Text) -> Self {
        Self { backend, group, version, tags: Tags::default(), known: Documents::default() }
    }
    /// The server is not available: what it serves is that of its last answer.
    pub(super) fn outdated(&mut self) {
        if self.known.discovered.current {
            let resources = self.known.discovered.resources.clone();
            self.known.discovered = Arc::new(Discovered { resources, current: false });
        }
    }

    /// Reads what the server serves.
    pub(super) async fn discover(&mut self) -> Result<(), String> {
        match self.discovery().await {
            Ok(found) => {
                let resources = found.unwrap_or_else(|| self.known.discovered.resources.clone());
                self.known.discovered = Arc::new(Discovered { resources, current: true });
                Ok(())
            }
            Err(error) => {
                self.tags.apis.clear();
                self.outdated();
                Err(error)
            }
        }
    }

    /// Its resources; nothing if they are as before.
    async fn discovery(&mut self) -> Result<Option<Vec<Served>>, String> {
        let user = aggregator();
        let limits = (DISCOVERY, DISCOVERY_TIME);
        let all = get(&self.backend, ("/apis", APIS, &self.tags.apis), &user, limits).await?;
        let (group, version) = (self.group.clone(), self.version.clone());
        if all.status == StatusCode::NOT_MODIFIED && !self.tags.apis.is_empty() {
            return Ok(None);
        }
        if all.status == StatusCode::SERVICE_UNAVAILABLE {
            return Err(format!("non-success response code: {}", all.status.as_u16()));
        }
        if all.status == StatusCode::OK && list(&all.content_type) {
            let Fetched { body, etag, .. } = all;
            let resources = elsewhere(move || of_list(&body, &group, &version)).await?;
            self.tags.apis = etag;
            return Ok(Some(resources));
        }
        self.tags.apis.clear();
        let path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        // As upstream: without a group that may everything.
        let nobody = UserInfo { groups: Vec::new(), ..user };
        let own = get(&self.backend, (&path, "application/json", ""), &nobody, limits).await?;
        if own.status != StatusCode::OK {
            return Err(format!("failed to download legacy discovery for {path}: {}", own.status.as_u16()));
        }
        elsewhere(move || legacy(&own.body, &group, &version)).await.map(Some)
    }

    /// Reads the documents of OpenAPI. Those that cannot be read stay as they were.
    pub(super) async fn describe(&mut self) -> Result<(), String> {
        let user = UserInfo { name: "system:aggregator".into(), ..UserInfo::default() };
        let (v2, v3) = (self.read_v2(&user).await, self.read_v3(&user).await);
        v2.and(v3)
    }

    async fn openapi(&self, user: &UserInfo, path: &str, tag: &str) -> Result<Fetched, String> {
        let document = (path, "application/json", tag);
        let found = get(&self.backend, document, user, (OPENAPI, OPENAPI_TIME)).await?;
        match found.status {
            StatusCode::OK | StatusCode::NOT_FOUND => Ok(found),
            StatusCode::NOT_MODIFIED if !tag.is_empty() => Ok(found),
            other => Err(format!("{path}: response code {}", other.as_u16())),
        }
    }

    async fn read_v2(&mut self, user: &UserInfo) -> Result<(), String> {
        let found = self.openapi(user, "/openapi/v2", &self.tags.v2).await?;
        match found.status {
            StatusCode::NOT_MODIFIED => return Ok(()),
            StatusCode::NOT_FOUND => self.known.v2 = None,
            _ => {
                let (group, version) = (self.group.clone(), self.version.clone());
                let body = found.body.clone();
                let part = elsewhere(move || specification(&body, &group, &version)).await?;
                if part != self.known.v2.as_deref().cloned() {
                    self.known.v2 = part.map(Arc::new);
                }
            }
        }
        self.tags.v2 = found.etag;
        Ok(())
    }

    async fn read_v3(&mut self, user: &UserInfo) -> Result<(), String> {
        let found = self.openapi(user, "/openapi/v3", &self.tags.v3).await?;
        match found.status {
            StatusCode::NOT_MODIFIED => return Ok(()),
            StatusCode::NOT_FOUND => self.known.v3 = None,
            _ => self.known.v3 = index_entry(&found.body, &self.group, &self.version)?,
        }
        self.tags.v3 = found.etag;
        Ok(())
    }
}

/// Reads a long document where nobody waits for short answers.
async fn elsewhere<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(read).await.map_err(|e| e.to_string())?
}
