//! The first step of a kubelet on its machine: its directories. An Event about the Node tells of a failure before the process
//! ends.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Client;
use client::events::{EventType, Recorder};

use crate::config::Config;
use crate::plugin_manager;
use crate::recorder;
use crate::volumes::{self, mounts};

/// How long the end waits until the Event is written.
const TELL: Duration = Duration::from_secs(5);

/// Why a kubelet cannot use its directories.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// A directory cannot be made.
    #[error("cannot make the directory {path}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its directory cannot be made one whose mounts containers see.
    #[error("the kubelet's directory {path} cannot be made a shared mount")]
    Unshared {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl SetUpError {
    /// Tells of it, as upstream does, unless nobody listens; waits for that a few seconds at most.
    pub(crate) async fn tell(&self, config: &Config, recorder: &Recorder, client: &Client) {
        if config.standalone {
            return;
        }
        let about = recorder::node(&config.node_name);
        let message = self.message(config);
        let told = recorder.write(client, about, EventType::Warning, "KubeletSetupFailed", message);
        match tokio::time::timeout(TELL, told).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the server refused the event of a failed set-up"),
            Err(_) => tracing::debug!("the event of a failed set-up could not be written in time"),
        }
    }

    /// Upstream's text.
    fn message(&self, config: &Config) -> String {
        let (path, error) = match self {
            Self::Unshared { source, .. } => {
                return format!("error configuring root directory: {}", as_go(source));
            }
            Self::Directory { path, source } => (path, source),
        };
        let shown = path.to_string_lossy();
        let of_root = path.strip_prefix(&config.root_dir).ok().and_then(Path::to_str);
        let what = match of_root {
            Some("") => "error creating root directory".to_owned(),
            Some("pods") => "error creating pods directory".to_owned(),
            Some("plugins") => "error creating plugins directory".to_owned(),
            Some("plugins_registry") => "error creating plugins registry directory".to_owned(),
            Some("pod-resources") => "error creating podresources directory".to_owned(),
            _ if *path == config.pod_logs_dir => {
                format!("error creating pod logs root directory {}", api::go::quote(&shown))
            }
            _ => format!("failed to create directory {}", api::go::quote(&shown)),
        };
        format!("{what}: mkdir {shown}: {}", as_go(error))
    }
}

/// The machine's word for an error as Go has it.
fn as_go(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split_once(" (os error").map_or(text.as_str(), |(text, _)| text);
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_lowercase().chain(rest).collect())
}

/// Makes the kubelet's directories, and its root one whose mounts containers see.
pub(crate) fn directories(config: &Config) -> Result<(), SetUpError> {
    let failed = |(path, source)| SetUpError::Directory { path, source };
    let dirs = [&config.root_dir, &config.pod_logs_dir, &config.pods_dir(), &config.container_logs_dir];
    for path in dirs {
        std::fs::create_dir_all(path).map_err(|error| failed((path.clone(), error)))?;
    }
    volumes::close(config).map_err(failed)?;
    plugin_manager::make_dirs(&config.root_dir).map_err(failed)?;
    let path = config.root_dir.clone();
    mounts::share(&path).map_err(|source| SetUpError::Unshared { path, source })
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn failures_have_upstreams_words() {
        let config = Config {
            root_dir: "/root".into(),
            pod_logs_dir: "/logs".into(),
            container_logs_dir: "/links".into(),
            ..Config::new("n")
        };
        let check = |path: &str, error: Errno, expected: &str| {
            let error = SetUpError::Directory { path: path.into(), source: error.into() };
            assert_eq!(error.message(&config), expected);
        };
        check("/root", Errno::NOTDIR, "error creating root directory: mkdir /root: not a directory");
        check("/root/pods", Errno::EXIST, "error creating pods directory: mkdir /root/pods: file exists");
        check(
            "/logs",
            Errno::ROFS,
            "error creating pod logs root directory \"/logs\": mkdir /logs: read-only file system",
        );
        check(
            "/root/plugins",
            Errno::NOSPC,
            "error creating plugins directory: mkdir /root/plugins: no space left on device",
        );
        check(
            "/root/plugins_registry",
            Errno::ACCESS,
            "error creating plugins registry directory: mkdir /root/plugins_registry: permission denied",
        );
        check(
            "/root/pod-resources",
            Errno::IO,
            "error creating podresources directory: mkdir /root/pod-resources: input/output error",
        );
        check("/links", Errno::EXIST, "failed to create directory \"/links\": mkdir /links: file exists");
        let unshared = SetUpError::Unshared { path: "/root".into(), source: Errno::INVAL.into() };
        assert_eq!(unshared.message(&config), "error configuring root directory: invalid argument");
    }

    #[test]
    fn the_directory_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let good = Config {
            root_dir: dir.path().join("kubelet"),
            pod_logs_dir: dir.path().join("logs"),
            container_logs_dir: dir.path().join("links"),
            ..Config::new("n")
        };
        let bad = file.join("below");
        for config in [
            Config { root_dir: bad.clone(), ..good.clone() },
            Config { pod_logs_dir: bad.clone(), ..good.clone() },
            Config { container_logs_dir: bad.clone(), ..good.clone() },
        ] {
            let Err(SetUpError::Directory { path, .. }) = directories(&config) else { panic!("{config:?}") };
            assert_eq!(path, bad);
        }
    }
}
