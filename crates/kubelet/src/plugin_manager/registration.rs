//! The registration of one plugin: it is asked who it is, handed to its handler, and told what came of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plugins::registration as pb;
use plugins::registration::registration_client::RegistrationClient;
use plugins::socket::{ConnectError, connect};
use tokio::time::timeout;
use tonic::transport::Channel;

use super::plugin::{Plugin, PluginHandler};

/// How long a connection may take, the question who it is, and the answer; upstream's.
const DIAL: Duration = Duration::from_secs(10);
const INFO: Duration = Duration::from_secs(1);
const NOTIFY: Duration = Duration::from_secs(11);
/// The longest name of a plugin: upstream's limit for drivers, and for the domain of a resource, with the resource's own
/// name.
const MAX_NAME: usize = 253 + 1 + 63;

/// Why a plugin is not registered.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegisterError {
    /// Nobody answers at the socket.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It did not answer in time.
    #[error("the plugin does not answer {0} in time")]
    Late(&'static str),
    /// It answered with an error.
    #[error("the plugin fails in {call}: {}", .status.message())]
    Call {
        /// The call.
        call: &'static str,
        /// Its answer.
        status: Box<tonic::Status>,
    },
    /// It cannot be used; the plugin was told so.
    #[error("{0}")]
    Refused(String),
}

/// A plugin with the handler that took it.
pub(super) type Registered = (Plugin, Arc<dyn PluginHandler>);

/// Registers the plugin of a socket.
///
/// # Errors
/// It is not registered then, and nothing of it is left.
pub(super) async fn register(
    socket: &Path,
    handlers: &[Arc<dyn PluginHandler>],
) -> Result<Registered, RegisterError> {
    let channel = timeout(DIAL, connect(socket)).await.map_err(|_| RegisterError::Late("a connection"))??;
    let mut client = RegistrationClient::new(channel);
    let info = timeout(INFO, client.get_info(pb::InfoRequest {})).await;
    let info = info.map_err(|_| RegisterError::Late("GetInfo"))?;
    let info = info.map_err(|e| RegisterError::Call { call: "GetInfo", status: Box::new(e) })?.into_inner();
    let (plugin, handler) = match choose(info, socket, handlers) {
        Ok(chosen) => chosen,
        Err(why) => return refuse(&mut client, why).await,
    };
    if let Err(why) = handler.register(&plugin).await {
        return refuse(
            &mut client,
            format!("RegisterPlugin error -- plugin registration failed with err: {why}"),
        )
        .await;
    }
    if let Err(error) = notify(&mut client, None).await {
        handler.deregister(&plugin).await;
        return Err(error);
    }
    Ok((plugin, handler))
}

/// Finds the handler of a plugin, and asks whether it can use it.
fn choose(
    info: pb::PluginInfo,
    socket: &Path,
    handlers: &[Arc<dyn PluginHandler>],
) -> Result<Registered, String> {
    let Some(handler) = handlers.iter().find(|h| h.kind() == info.r#type) else {
        return Err(format!(
            "RegisterPlugin error -- no handler registered for plugin type: {} at socket {}",
            info.r#type,
            socket.display()
        ));
    };
    let invalid = |why: String| format!("RegisterPlugin error -- plugin validation failed with err: {why}");
    if info.name.is_empty() || info.name.len() > MAX_NAME || !handler.is_name(&info.name) {
        return Err(invalid(format!("the plugin's name {:?} cannot be used", shortened(&info.name))));
    }
    let endpoint = match info.endpoint.as_str() {
        "" => socket.to_owned(),
        path => PathBuf::from(path.strip_prefix("unix://").unwrap_or(path)),
    };
    let plugin = Plugin { name: info.name, endpoint, versions: info.supported_versions };
    handler.validate(&plugin).map_err(invalid)?;
    Ok((plugin, handler.clone()))
}

/// The beginning of a name that may be of any length.
fn shortened(name: &str) -> String {
    name.chars().take(MAX_NAME).collect()
}

/// Tells the plugin why it cannot be used.
async fn refuse(client: &mut RegistrationClient<Channel>, why: String) -> Result<Registered, RegisterError> {
    notify(client, Some(&why)).await?;
    Err(RegisterError::Refused(why))
}

async fn notify(client: &mut RegistrationClient<Channel>, error: Option<&str>) -> Result<(), RegisterError> {
    let status = pb::RegistrationStatus {
        plugin_registered: error.is_none(),
        error: error.unwrap_or_default().to_owned(),
    };
    let call = "NotifyRegistrationStatus";
    let told = timeout(NOTIFY, client.notify_registration_status(status)).await;
    told.map_err(|_| RegisterError::Late(call))?
        .map_err(|e| RegisterError::Call { call, status: Box::new(e) })?;
    Ok(())
}
