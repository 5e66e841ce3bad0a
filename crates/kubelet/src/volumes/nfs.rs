//! Exports of NFS servers, mounted by the host's `mount` (upstream: `pkg/volume/nfs`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume};
use tokio::process::Command;
use tokio::time::timeout;

use super::mounts;
use crate::exit_status;
use crate::work::{Interrupted, try_blocking};

/// The plugin's directory name; upstream's.
pub(super) const PLUGIN: &str = "kubernetes.io~nfs";

/// The host's program, which itself calls `mount.nfs`.
const PROGRAM: &str = "mount";

/// How long the program may take. DIFFERENCE: upstream waits for as long as it takes, which is minutes for a server that
/// does not answer; here it is ended, and the next attempt starts anew.
const PATIENCE: Duration = Duration::from_mins(2);

/// How much of the program's words an error has, in bytes.
const WORDS: usize = 4096;

/// The annotation that holds a volume's mount options in place of its field.
const OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// An export, as it is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Export {
    /// Server and path.
    source: String,
    /// Mount options, each once.
    options: BTreeSet<String>,
}

/// Why an export could not be mounted; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NfsError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(
        "mount failed: {why}\nMounting command: mount\nMounting arguments: {arguments}\nOutput: {output}"
    )]
    Failed { why: String, arguments: String, output: String },
}

impl From<Interrupted> for NfsError {
    fn from(error: Interrupted) -> Self {
        Self::Io(error.into())
    }
}

/// The mount options of a volume; the older annotation counts more.
pub(super) fn options(volume: &PersistentVolume) -> Vec<String> {
    let annotated = volume.metadata.annotations.as_ref().and_then(|all| all.get(OPTIONS));
    match annotated {
        Some(text) => text.split(',').map(str::to_owned).collect(),
        None => volume.spec.as_ref().and_then(|s| s.mount_options.clone()).unwrap_or_default(),
    }
}

/// The place at which an export is mounted for a Pod, in the Pod's directory.
pub(super) fn target(pod_dir: &Path, volume: &str) -> PathBuf {
    pod_dir.join("volumes").join(PLUGIN).join(volume)
}

impl Export {
    /// The export of a source, with these options and, if it is only read, `ro`.
    pub(super) fn new(source: &NFSVolumeSource, read_only: bool, options: Vec<String>) -> Self {
        let server = match source.server.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]"),
            Err(_) => source.server.clone(),
        };
        let read_only = read_only.then(|| "ro".to_owned());
        Self {
            source: format!("{server}:{}", source.path),
            options: options.into_iter().chain(read_only).filter(|option| !option.is_empty()).collect(),
        }
    }

    /// The program's arguments. DIFFERENCE: upstream does not tell the program where its options end, so that a server
    /// whose name begins with a dash is one.
    fn arguments(&self, target: &Path) -> Vec<String> {
        let mut all = vec!["-t".to_owned(), "nfs".to_owned()];
        if !self.options.is_empty() {
            let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
            all.extend(["-o".to_owned(), options.join(",")]);
        }
        all.extend(["--".to_owned(), self.source.clone(), target.to_string_lossy().into_owned()]);
        all
    }

    /// Mounts the export, if it is not yet.
    ///
    /// # Errors
    /// The program is missing, fails, or does not end; nothing is mounted then.
    pub(super) async fn mount(&self, target: &Path) -> Result<(), NfsError> {
        self.mount_by(Path::new(PROGRAM), target).await
    }

    async fn mount_by(&self, program: &Path, target: &Path) -> Result<(), NfsError> {
        let at = target.to_owned();
        // A server that does not answer, or answers nobody but its users, cannot be asked what is at the target.
        let mounted = move || {
            if mounts::is_listed(&at)? {
                return Ok::<_, NfsError>(true);
            }
            fs::DirBuilder::new().recursive(true).mode(0o750).create(&at)?;
            Ok(false)
        };
        if try_blocking(mounted).await? {
            return Ok(());
        }
        let arguments = self.arguments(target);
        let mut command = Command::new(program);
        command.args(&arguments);
        let (why, output) = match timeout(PATIENCE, component::program::run(&mut command)).await {
            Ok(Ok(ended)) if ended.status.success() => return Ok(()),
            Ok(Ok(ended)) => (exit_status::told(ended.status), words(&[ended.stdout, ended.stderr].concat())),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                ("exec: \"mount\": executable file not found in $PATH".to_owned(), String::new())
            }
            Ok(Err(error)) => (error.to_string(), String::new()),
            Err(_) => (format!("it did not end within {} s", PATIENCE.as_secs()), String::new()),
        };
        let at = target.to_owned();
        // The program may have mounted it all the same.
        let undone = try_blocking(move || {
            mounts::unmount_all_at(&at)?;
            fs::remove_dir(&at)?;
            Ok::<_, NfsError>(())
        });
        if let Err(error) = undone.await {
            tracing::warn!(target = %target.display(), %error, "the directory of a failed mount cannot be removed");
        }
        Err(NfsError::Failed { why, arguments: arguments.join(" "), output })
    }
}

/// The beginning of a program's words.
fn words(output: &[u8]) -> String {
    String::from_utf8_lossy(&output[..output.len().min(WORDS)]).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn export(server: &str, read_only: bool, options: &[&str]) -> Export {
        let source = NFSVolumeSource { server: server.into(), path: "/e".into(), read_only: None };
        Export::new(&source, read_only, options.iter().map(|o| (*o).to_owned()).collect())
    }

    #[test]
    fn arguments_of_the_program() {
        let check = |server: &str, read_only: bool, options: &[&str], expected: &str| {
            assert_eq!(export(server, read_only, options).arguments(Path::new("/t")).join(" "), expected);
        };
        check("s", false, &[], "-t nfs -- s:/e /t");
        check("192.0.2.1", true, &[], "-t nfs -o ro -- 192.0.2.1:/e /t");
        check(
            "fd00::1",
            false,
            &["nfsvers=4.1", "hard", "", "hard"],
            "-t nfs -o hard,nfsvers=4.1 -- [fd00::1]:/e /t",
        );
        check("s", true, &["ro", "nolock"], "-t nfs -o nolock,ro -- s:/e /t");
        check("--bind", false, &[], "-t nfs -- --bind:/e /t");
    }

    #[test]
    fn options_of_volumes() {
        let check = |volume: serde_json::Value, expected: &[&str]| {
            assert_eq!(options(&serde_json::from_value(volume).unwrap()), expected);
        };
        check(json!({"spec": {}}), &[]);
        check(json!({"spec": {"mountOptions": ["hard", "ro"]}}), &["hard", "ro"]);
        let annotated = json!({"annotations": {OPTIONS: "soft,nolock"}});
        check(json!({"metadata": annotated, "spec": {"mountOptions": ["hard"]}}), &["soft", "nolock"]);
    }

    /// A program in the place of the host's.
    fn program(dir: &Path, script: &str) -> PathBuf {
        let path = dir.join("mount");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[tokio::test]
    async fn an_export_is_mounted_once_and_outlives_the_pod() {
        let dir = tempfile::tempdir().unwrap();
        let served = dir.path().join("served");
        fs::create_dir(&served).unwrap();
        fs::write(served.join("file"), "x").unwrap();
        let script = format!(
            "echo \"$@\" >> {0}/calls\nfor last; do :; done\nexec mount --bind {0}/served \"$last\"",
            dir.path().display()
        );
        let program = program(dir.path(), &script);
        let pod = dir.path().join("pod");
        let at = target(&pod, "v");
        for _ in 0..2 {
            export("s", false, &[]).mount_by(&program, &at).await.unwrap();
            assert_eq!(fs::read_to_string(at.join("file")).unwrap(), "x");
        }
        let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
        assert_eq!(calls, format!("-t nfs -- s:/e {}\n", at.display()));
        mounts::remove_unmounted(&pod).unwrap();
        assert!(!pod.exists() && served.join("file").exists());
    }

    #[tokio::test]
    async fn a_failure_is_told_in_the_programs_words() {
        let dir = tempfile::tempdir().unwrap();
        let at = target(dir.path(), "v");
        let check = async |program: &Path, expected: &str| {
            let told = export("s", true, &[]).mount_by(program, &at).await.unwrap_err().to_string();
            assert_eq!(told, expected.replace("TARGET", &at.display().to_string()));
            assert!(!at.exists(), "nothing is left for containers to write into");
        };
        let told = "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs -o ro -- s:/e TARGET\nOutput: no helper\n";
        check(&program(dir.path(), "echo no helper >&2; exit 32"), told).await;
        let missing = "mount failed: exec: \"mount\": executable file not found in $PATH\nMounting command: mount\nMounting arguments: -t nfs -o ro -- s:/e TARGET\nOutput: ";
        check(&dir.path().join("none"), missing).await;
    }
}
