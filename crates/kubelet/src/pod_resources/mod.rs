//! Which devices, processors and memory the containers of this node have alone, for agents on it (upstream: `pkg/kubelet/apis/podresources`).
//!
//! Nobody who asks is authenticated: the socket is root's. More questions than the limit are refused, so that nobody keeps
//! the kubelet from its work.

mod answers;
mod limit;
mod metrics;
mod server;

pub(crate) use self::server::PodResources;
