//! Drivers of FlexVolumes: programs that are called with a command and answer in JSON (upstream: `pkg/volume/flexvolume`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use component::program;
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};
use tokio::process::Command;
use tokio::time::timeout;

/// How long a driver may take; upstream's limit for `waitforattach`. DIFFERENCE: upstream waits for the other calls for as
/// long as they take; here a driver that hangs is ended, and the next attempt starts anew.
const PATIENCE: Duration = Duration::from_mins(10);
/// How much of a driver's words an error has, in bytes.
const WORDS: usize = 4096;

/// The answer of a driver that does not know a command.
const NOT_SUPPORTED: &str = "Not supported";

/// The abilities of a driver, as its answer to `init` tells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// Whether volumes are attached to nodes and mounted there once, for all Pods.
    pub attach: bool,
    /// Whether files may get another SELinux label.
    #[serde(rename = "selinuxRelabel")]
    pub selinux_relabel: bool,
    /// Whether a volume is a file system of its own, of which it can be told how full it is.
    pub supports_metrics: bool,
    /// Whether files may be given to a Pod's group.
    #[serde(rename = "fsGroup")]
    pub fs_group: bool,
    /// Whether the file system must be made larger after its device.
    #[serde(rename = "requiresFSResize")]
    pub requires_fs_resize: bool,
}

impl Default for Capabilities {
    /// Those of a driver that tells of none; upstream's.
    fn default() -> Self {
        Self {
            attach: true,
            selinux_relabel: true,
            supports_metrics: false,
            fs_group: true,
            requires_fs_resize: true,
        }
    }
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// `Success`, `Failure` or `Not supported`.
    pub status: String,
    /// Why.
    pub message: String,
    /// The path of the device, after `attach` and `waitforattach`.
    pub device: String,
    /// Whether the volume is attached, after `isattached`.
    pub attached: bool,
    /// The driver's abilities, after `init`.
    #[serde(alias = "Capabilities", deserialize_with = "or_default")]
    pub capabilities: Capabilities,
}

fn or_default<'de, D: Deserializer<'de>>(from: D) -> Result<Capabilities, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Why a call has no answer that helps; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The driver does not know the command.
    #[error("Not supported")]
    NotSupported,
    /// There is no such driver.
    #[error("no volume plugin matched: the driver {0} is not there or cannot be executed")]
    Missing(PathBuf),
    /// It cannot be started.
    #[error("the FlexVolume driver {path} cannot be started: {source}")]
    Start {
        /// Its program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It does not answer.
    #[error("timeout")]
    Late,
    /// It says that it failed.
    #[error("{command} command failed, status: {status}, reason: {reason}")]
    Failed {
        /// The command.
        command: String,
        /// The driver's word for it.
        status: String,
        /// Why.
        reason: String,
    },
    /// Its answer cannot be understood, or does not fit its end.
    #[error("the FlexVolume driver answered {command} with {output:?}: {why}")]
    Answer {
        /// The command.
        command: String,
        /// Its words.
        output: String,
        /// The fault.
        why: String,
    },
}

/// Reads an answer.
///
/// # Errors
/// It is no success.
fn read(command: &str, output: &[u8]) -> Result<Answer, CallError> {
    let answer: Answer = serde_json::from_slice(output).map_err(|error| CallError::Answer {
        command: command.to_owned(),
        output: String::from_utf8_lossy(&output[..output.len().min(WORDS)]).into_owned(),
        why: error.to_string(),
    })?;
    match answer.status.as_str() {
        "Success" => Ok(answer),
        NOT_SUPPORTED => Err(CallError::NotSupported),
        _ => Err(CallError::Failed {
            command: command.to_owned(),
            status: answer.status,
            reason: answer.message,
        }),
    }
}

/// The directory of a driver in that of all drivers: `vendor~name` for `vendor/name`.
pub fn directory(driver: &str) -> String {
    driver.replace('/', "~")
}

/// The options of a volume, as calls have them: the kubelet's, then `more`, then the volume's own, each in place of those
/// before it.
pub fn options(
    (fs_type, read_only, name): (&str, bool, &str),
    more: BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
) -> String {
    let mut all = BTreeMap::from([
        ("kubernetes.io/fsType".to_owned(), fs_type.to_owned()),
        ("kubernetes.io/readwrite".to_owned(), if read_only { "ro" } else { "rw" }.to_owned()),
        ("kubernetes.io/pvOrVolumeName".to_owned(), name.to_owned()),
    ]);
    all.extend(more);
    all.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
    serde_json::Value::Object(all.into_iter().map(|(key, value)| (key, value.into())).collect()).to_string()
}

/// The state of a driver's program by which a new one is noticed.
type Stamp = (u64, u64, i64, i64);

/// A driver that has answered `init`.
#[derive(Debug)]
pub struct Driver {
    program: PathBuf,
    /// Its abilities.
    pub capabilities: Capabilities,
    /// The commands that it is known not to know.
    unknown: Mutex<BTreeSet<String>>,
}

impl Driver {
    async fn start(program: PathBuf) -> Result<Self, CallError> {
        let mut driver = Self { program, capabilities: Capabilities::default(), unknown: Mutex::default() };
        driver.capabilities = driver.call("init", &[]).await?.capabilities;
        Ok(driver)
    }

    /// Calls it. Arguments may hold secrets: they are not logged.
    ///
    /// # Errors
    /// It does not know the command, fails or does not end.
    pub async fn call(&self, command: &str, arguments: &[&str]) -> Result<Answer, CallError> {
        if self.unknown.lock().contains(command) {
            return Err(CallError::NotSupported);
        }
        let mut program = Command::new(&self.program);
        let ended = program::run(program.arg(command).args(arguments));
        let ended = timeout(PATIENCE, ended).await.map_err(|_| CallError::Late)?;
        let ended = ended.map_err(|source| CallError::Start { path: self.program.clone(), source })?;
        // DIFFERENCE: upstream reads what the driver writes to both its outputs, so that a warning spoils an answer.
        let answer = read(command, &ended.stdout);
        if matches!(answer, Err(CallError::NotSupported)) {
            self.unknown.lock().insert(command.to_owned());
        }
        if answer.is_ok() && !ended.status.success() {
            return Err(CallError::Answer {
                command: command.to_owned(),
                output: String::from_utf8_lossy(&ended.stdout[..ended.stdout.len().min(WORDS)]).into_owned(),
                why: format!("it ended with {}", ended.status),
            });
        }
        answer
    }
}

/// The drivers in a directory. Each time that one is needed, it is looked at: one that is new, or has changed, is asked for
/// its abilities, so nothing needs to be watched.
#[derive(Debug)]
pub struct Drivers {
    dir: PathBuf,
    known: Mutex<HashMap<String, (Stamp, Arc<Driver>)>>,
}

impl Drivers {
    /// Those of a directory, which need not be there.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, known: Mutex::default() }
    }

    fn program(&self, driver: &str) -> Option<PathBuf> {
        let directory = directory(driver);
        // A driver is directly in its directory, whatever a volume says.
        let sane = |name: &str| !name.is_empty() && !name.starts_with('.');
        let name = driver.rsplit('/').next().unwrap_or(driver);
        (sane(&directory) && sane(name)).then(|| self.dir.join(&directory).join(name))
    }

    /// A driver.
    ///
    /// # Errors
    /// It is not there, or does not answer `init`.
    pub async fn get(&self, driver: &str) -> Result<Arc<Driver>, CallError> {
        let program =
            self.program(driver).ok_or_else(|| CallError::Missing(self.dir.join(directory(driver))))?;
        let found = tokio::fs::metadata(&program).await.ok().filter(|m| m.is_file() && m.mode() & 0o111 != 0);
        let Some(found) = found else {
            self.known.lock().remove(driver);
            return Err(CallError::Missing(program));
        };
        let stamp = (found.ino(), found.len(), found.mtime(), found.mtime_nsec());
        let known = self.known.lock().get(driver).filter(|(of, _)| *of == stamp).map(|(_, d)| d.clone());
        if let Some(known) = known {
            return Ok(known);
        }
        let new = Arc::new(Driver::start(program).await?);
        self.known.lock().insert(driver.to_owned(), (stamp, new.clone()));
        Ok(new)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn answers() {
        let check = |output: &str, expected: Result<&str, &str>| {
            let got = read("test", output.as_bytes()).map(|a| a.device).map_err(|e| e.to_string());
            match (got, expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected),
                (Err(got), Err(expected)) => assert!(got.contains(expected), "{got}"),
                (got, expected) => panic!("{got:?} {expected:?}"),
            }
        };
        check(r#"{"status": "Success"}"#, Ok(""));
        check(r#"{"status": "Success", "device": "/dev/sdx", "more": 1}"#, Ok("/dev/sdx"));
        check(r#"{"status": "Not supported"}"#, Err("Not supported"));
        let failed = "test command failed, status: Failure, reason: no disk";
        check(r#"{"status": "Failure", "message": "no disk"}"#, Err(failed));
        check("{}", Err("test command failed, status: , reason: "));
        check("oops", Err("the FlexVolume driver answered test with \"oops\""));
    }

    /// Upstream's `TestHandleResponseDefaults`, and more.
    #[test]
    fn capabilities() {
        let check = |told: &str, expected: Capabilities| {
            let output = format!(r#"{{"status": "Success"{told}}}"#);
            assert_eq!(read("init", output.as_bytes()).unwrap().capabilities, expected, "{told}");
        };
        let usual = Capabilities::default();
        assert!(usual.attach && usual.fs_group && !usual.supports_metrics);
        check("", usual);
        check(r#", "capabilities": null"#, usual);
        check(r#", "capabilities": {"attach": false}"#, Capabilities { attach: false, ..usual });
        let all = r#", "capabilities": {"attach": false, "selinuxRelabel": false, "supportsMetrics": true, "fsGroup": false, "requiresFSResize": false}"#;
        let expected = Capabilities {
            attach: false,
            selinux_relabel: false,
            supports_metrics: true,
            fs_group: false,
            requires_fs_resize: false,
        };
        check(all, expected);
    }

    #[test]
    fn options_of_volumes() {
        let of = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let usual = r#"{"kubernetes.io/fsType":"","kubernetes.io/pvOrVolumeName":"vol1","kubernetes.io/readwrite":"rw"}"#;
        assert_eq!(options(("", false, "vol1"), of(&[]), &of(&[])), usual);
        let more = of(&[("kubernetes.io/pod.name", "p"), ("kubernetes.io/secret/a", "eA==")]);
        let own = of(&[("share", "s"), ("kubernetes.io/fsType", "mine")]);
        let all = r#"{"kubernetes.io/fsType":"mine","kubernetes.io/pod.name":"p","kubernetes.io/pvOrVolumeName":"v","kubernetes.io/readwrite":"ro","kubernetes.io/secret/a":"eA==","share":"s"}"#;
        assert_eq!(options(("ext4", true, "v"), more, &own), all);
    }

    fn install(dir: &Path, driver: &str, script: &str) {
        let at = dir.join(directory(driver));
        fs::create_dir_all(&at).unwrap();
        // A program that is replaced is another file, as with upstream's advice to driver's installers.
        let new = at.join(".new");
        fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, at.join(driver.rsplit('/').next().unwrap())).unwrap();
    }

    /// Upstream's cases of probe_test.go: drivers come, change and go.
    #[tokio::test]
    async fn drivers_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let drivers = Drivers::new(dir.path().join("exec"));
        let missing = |error: CallError| matches!(error, CallError::Missing(_));
        assert!(missing(drivers.get("v/d").await.unwrap_err()));
        install(drivers.dir(), "v/d", r#"echo '{"status": "Success"}'"#);
        let first = drivers.get("v/d").await.unwrap();
        assert!(first.capabilities.attach && Arc::ptr_eq(&first, &drivers.get("v/d").await.unwrap()));
        install(drivers.dir(), "v/d", r#"echo '{"status": "Success", "capabilities": {"attach": false}}'"#);
        assert!(!drivers.get("v/d").await.unwrap().capabilities.attach);
        install(drivers.dir(), "broken", r#"echo '{"status": "Failure", "message": "no"}'; exit 1"#);
        let told = drivers.get("broken").await.unwrap_err().to_string();
        assert_eq!(told, "init command failed, status: Failure, reason: no");
        fs::write(dir.path().join("d"), "").unwrap();
        for bad in ["", "..", "../d", "v/..", "."] {
            assert!(missing(drivers.get(bad).await.unwrap_err()), "{bad}");
        }
        let program = drivers.program("v/d").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(missing(drivers.get("v/d").await.unwrap_err()));
        fs::remove_file(program).unwrap();
        assert!(missing(drivers.get("v/d").await.unwrap_err()));
    }

    #[tokio::test]
    async fn a_command_that_is_not_known_is_asked_for_once() {
        let dir = tempfile::tempdir().unwrap();
        let drivers = Drivers::new(dir.path().to_owned());
        let script = format!(
            "echo \"$@\" >> {}/calls; echo noise >&2\ncase $1 in\ninit) echo '{{\"status\": \"Success\"}}';;\nbug) echo '{{\"status\": \"Success\"}}'; exit 1;;\n*) echo '{{\"status\": \"Not supported\"}}'; exit 1;;\nesac",
            dir.path().display()
        );
        install(dir.path(), "d", &script);
        let driver = drivers.get("d").await.unwrap();
        for _ in 0..2 {
            let told = driver.call("mount", &["/t", "{}"]).await.unwrap_err();
            assert!(matches!(told, CallError::NotSupported), "{told}");
        }
        let bug = driver.call("bug", &[]).await.unwrap_err().to_string();
        assert!(bug.ends_with("it ended with exit status: 1"), "{bug}");
        assert_eq!(fs::read_to_string(dir.path().join("calls")).unwrap(), "init\nmount /t {}\nbug\n");
    }
}
