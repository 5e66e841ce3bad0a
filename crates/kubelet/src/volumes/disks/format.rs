//! A device gets a file system, if it has none, and is mounted (upstream: `k8s.io/mount-utils`, `SafeFormatAndMount`).

use std::path::Path;
use std::time::Duration;

use super::host::{Host, RunError};

/// How long a file system may be made or checked.
const LONG: Duration = Duration::from_hours(24);
/// The exit code of `blkid` for a device in which it finds nothing.
const NOTHING: i32 = 2;
/// The exit code of `fsck` for errors that it mended.
const CORRECTED: i32 = 1;
/// The exit code of `fsck` for errors that it could not mend.
const UNCORRECTED: i32 = 4;

/// Why a device could not be mounted; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("{0:?} is no kind of file system: its name has letters, digits, - and _")]
    Kind(String),
    #[error("failed to get disk format of disk {device}: {error}")]
    Unknown { device: String, error: String },
    #[error("cannot mount unformatted disk {0} as we are manipulating it in read-only mode")]
    ReadOnly(String),
    #[error("format of disk {device:?} failed: type:({fs_type:?}) errcode:({error}) output:({output}) ")]
    Format { device: String, fs_type: String, error: RunError, output: String },
    #[error("'fsck' found errors on device {device} but could not correct them: {output}")]
    Broken { device: String, output: String },
    #[error(
        "mount failed: {why}\nMounting command: mount\nMounting arguments: {arguments}\nOutput: {output}"
    )]
    Mount { why: RunError, arguments: String, output: String },
}

/// Why a file system could not be made as large as its device; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResizeError {
    #[error("ResizeFS.Resize - error checking format for device {device}: {error}")]
    Unknown { device: String, error: String },
    #[error(
        "ResizeFS.Resize - resize of format {fs_type} is not supported for device {device} mounted at {target}"
    )]
    Kind { fs_type: String, device: String, target: String },
    #[error("resize of device {device} failed: {error}. {program} output: {}", .error.output())]
    Program { device: String, program: &'static str, error: RunError },
}

/// The file system that `blkid` found on a device; empty if there is nothing.
fn found(output: &str) -> Result<String, String> {
    let (mut fs_type, mut partitions) = ("", false);
    for line in output.lines().filter(|line| !line.is_empty()) {
        let mut parts = line.split('=');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("TYPE"), Some(value), None) => fs_type = value,
            (Some("PTTYPE"), Some(value), None) => partitions |= !value.is_empty(),
            (Some(_), Some(_), None) => {}
            _ => return Err(format!("blkid returns invalid output: {output}")),
        }
    }
    // Upstream's words; a device with partitions is never formatted.
    Ok(if partitions { "unknown data, probably partitions" } else { fs_type }.to_owned())
}

/// The arguments of `mkfs`.
fn arguments<'a>(fs_type: &str, device: &'a str) -> Vec<&'a str> {
    match fs_type {
        "ext3" | "ext4" => vec!["-F", "-m0", device],
        "xfs" => vec!["-f", device],
        _ => vec![device],
    }
}

async fn format_of(host: &Host, device: &str) -> Result<String, String> {
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device];
    match host.run("blkid", &arguments).await {
        Ok(output) => found(&output),
        Err(error) if error.code() == Some(NOTHING) => Ok(String::new()),
        Err(error) => Err(error.to_string()),
    }
}

async fn check(host: &Host, device: &str) -> Result<(), FormatError> {
    match host.run_for(LONG, "fsck", &["-a", device]).await {
        Ok(_) => {}
        Err(RunError::Missing(_)) => {
            tracing::warn!(device, "the program fsck is missing, so a volume is mounted without a check");
        }
        Err(error) if error.code() == Some(CORRECTED) => {
            tracing::info!(device, "errors of a file system were corrected");
        }
        Err(error) if error.code() == Some(UNCORRECTED) => {
            let output = error.output().to_owned();
            return Err(FormatError::Broken { device: device.to_owned(), output });
        }
        Err(error) => {
            let output = error.output();
            tracing::warn!(device, %error, output, "a file system could not be checked");
        }
    }
    Ok(())
}

/// Mounts a device at a path that is there. It gets a file system before, if it has nothing at all on it; one that has is
/// checked, unless it is only read.
///
/// # Errors
/// A program is missing or fails; nothing is mounted then.
pub(super) async fn format_and_mount(
    host: &Host,
    (device, target): (&Path, &Path),
    fs_type: &str,
    options: &[String],
) -> Result<(), FormatError> {
    let (device, target) = (device.to_string_lossy(), target.to_string_lossy());
    let (device, target) = (device.as_ref(), target.as_ref());
    let read_only = options.iter().any(|option| option == "ro");
    let fs_type = if fs_type.is_empty() { "ext4" } else { fs_type };
    // DIFFERENCE: upstream takes any text, which chooses programs of the host by its name: mkfs.TEXT, mount.TEXT, and with
    // fuse.TEXT any at all, whose script is the content of the device.
    if !fs_type.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) {
        return Err(FormatError::Kind(fs_type.to_owned()));
    }
    let existing = format_of(host, device).await;
    let existing = existing.map_err(|error| FormatError::Unknown { device: device.to_owned(), error })?;
    if !existing.is_empty() {
        if existing != fs_type {
            tracing::warn!(
                device,
                wanted = fs_type,
                existing,
                "a volume has another file system than is wanted"
            );
        }
        if !read_only {
            check(host, device).await?;
        }
    } else if read_only {
        return Err(FormatError::ReadOnly(device.to_owned()));
    } else {
        tracing::info!(device, fs_type, "a volume without a file system gets one");
        let made = host.run_for(LONG, &format!("mkfs.{fs_type}"), &arguments(fs_type, device)).await;
        made.map_err(|error| FormatError::Format {
            device: device.to_owned(),
            fs_type: fs_type.to_owned(),
            output: error.output().to_owned(),
            error,
        })?;
    }
    let options = options.iter().map(String::as_str).chain(["defaults"]).collect::<Vec<_>>().join(",");
    let arguments = ["-t", fs_type, "-o", &options, "--", device, target];
    host.run("mount", &arguments).await.map(drop).map_err(|why| FormatError::Mount {
        arguments: arguments.join(" "),
        output: why.output().to_owned(),
        why,
    })
}

/// Makes a file system as large as its device, on which it is mounted at `target` (upstream: `mount-utils`, `ResizeFs`).
///
/// # Errors
/// It is of a kind that cannot grow, or its program is missing or fails.
pub(super) async fn grow(host: &Host, device: &Path, target: &Path) -> Result<(), ResizeError> {
    let (device, target) = (device.to_string_lossy(), target.to_string_lossy());
    let format = format_of(host, &device).await;
    let format =
        format.map_err(|error| ResizeError::Unknown { device: device.clone().into_owned(), error })?;
    let (program, arguments): (&'static str, Vec<&str>) = match format.as_str() {
        // It gets one of the device's size.
        "" => return Ok(()),
        "ext3" | "ext4" => ("resize2fs", vec![&device]),
        "xfs" => ("xfs_growfs", vec!["-d", &target]),
        "btrfs" => ("btrfs", vec!["filesystem", "resize", "max", &target]),
        _ => {
            let (device, target) = (device.into_owned(), target.into_owned());
            return Err(ResizeError::Kind { fs_type: format, device, target });
        }
    };
    let done = host.run_for(LONG, program, &arguments).await;
    done.map(drop).map_err(|error| ResizeError::Program { device: device.into_owned(), program, error })
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    use super::super::host::tests::host;
    use super::*;
    use crate::volumes::mounts;

    /// A device of the kernel's with a file behind it; detached at its end.
    pub(in super::super) struct Loop(pub(in super::super) PathBuf);

    impl Loop {
        /// An empty one, of 16 MiB.
        pub(in super::super) fn new(dir: &Path) -> Self {
            let file = dir.join("image");
            fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
            let made = Command::new("losetup").args(["--find", "--show"]).arg(&file).output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            Self(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim()))
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
        }
    }

    #[test]
    fn devices_with_and_without_something() {
        let check = |output: &str, expected: Result<&str, &str>| {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(found(output), expected, "{output}");
        };
        // Upstream's cases of `TestGetDiskFormat` in mount_linux_test.go.
        check("DEVNAME=/dev/vda\nTYPE=ext4\n", Ok("ext4"));
        check("DEVNAME=/dev/vda\n", Ok(""));
        check("DEVNAME=/dev/vda\nPTTYPE=dos\n", Ok("unknown data, probably partitions"));
        check("DEVNAME=/dev/vda\nTYPE=ext4\nPTTYPE=dos\n", Ok("unknown data, probably partitions"));
        check("no equal sign", Err("blkid returns invalid output: no equal sign"));
        check("TYPE=a=b", Err("blkid returns invalid output: TYPE=a=b"));
        check("", Ok(""));
    }

    #[tokio::test]
    async fn a_kind_of_file_system_chooses_no_program() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path(), &[("blkid", "exit 2"), ("mkfs.x", "exit 0"), ("mount", "exit 0")]);
        let check = async |fs_type: &str, expected: bool| {
            let done = format_and_mount(&host, (Path::new("/d"), Path::new("/t")), fs_type, &[]).await;
            assert_eq!(done.is_ok(), expected, "{fs_type}: {done:?}");
        };
        check("x", true).await;
        for bad in ["fuse.sh", "x/../../tmp/x", "x,y", "x y"] {
            check(bad, false).await;
        }
    }

    #[test]
    fn arguments_of_mkfs() {
        let check = |fs_type: &str, expected: &str| {
            assert_eq!(arguments(fs_type, "/d").join(" "), expected);
        };
        check("ext4", "-F -m0 /d");
        check("ext3", "-F -m0 /d");
        check("xfs", "-f /d");
        check("btrfs", "/d");
    }

    /// Upstream's cases of `TestSafeFormatAndMount`: exit codes of programs, and what becomes of it.
    #[tokio::test]
    async fn programs_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let check = async |options: &[&str], scripts: &[(&str, &str)], calls: &str, expected: &str| {
            let log = dir.path().join("calls");
            let _ = fs::remove_file(&log);
            let log_by = |name: &str, script: &str| format!("echo {name} >> {}; {script}", log.display());
            let all = ["blkid", "fsck", "mkfs.ext4", "mount"].map(|name| {
                let script = scripts.iter().find(|(of, _)| *of == name).map_or("", |(_, s)| *s);
                (name, log_by(name, script))
            });
            let all: Vec<(&str, &str)> = all.iter().map(|(name, script)| (*name, script.as_str())).collect();
            let host = host(dir.path(), &all);
            let options: Vec<String> = options.iter().map(ToString::to_string).collect();
            let done = format_and_mount(&host, (Path::new("/d"), Path::new("/t")), "", &options).await;
            let told = done.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{told}");
            assert_eq!(
                fs::read_to_string(&log).unwrap().split_whitespace().collect::<Vec<_>>().join(" "),
                calls
            );
        };
        let ext4 = ("blkid", "echo TYPE=ext4");
        check(&["ro"], &[ext4], "blkid mount", "").await;
        check(&[], &[ext4], "blkid fsck mount", "").await;
        check(&[], &[ext4, ("fsck", "exit 1")], "blkid fsck mount", "").await;
        let broken = "'fsck' found errors on device /d but could not correct them: bad";
        check(&[], &[ext4, ("fsck", "echo bad; exit 4")], "blkid fsck", broken).await;
        check(&[], &[ext4, ("fsck", "exit 8")], "blkid fsck mount", "").await;
        check(&[], &[("blkid", "exit 2")], "blkid mkfs.ext4 mount", "").await;
        let read_only = "cannot mount unformatted disk /d as we are manipulating it in read-only mode";
        check(&["ro"], &[("blkid", "exit 2")], "blkid", read_only).await;
        let unknown = "failed to get disk format of disk /d: exit status 4";
        check(&[], &[("blkid", "exit 4")], "blkid", unknown).await;
        let format = "format of disk \"/d\" failed: type:(\"ext4\") errcode:(exit status 5) output:(no";
        let fails = ("mkfs.ext4", "echo no; exit 5");
        check(&[], &[("blkid", "exit 2"), fails], "blkid mkfs.ext4", format).await;
        let mount = "Mounting arguments: -t ext4 -o noatime,defaults -- /d /t\nOutput: no";
        check(&["noatime"], &[ext4, ("mount", "echo no; exit 32")], "blkid fsck mount", mount).await;
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = host(dir.path(), &[("blkid", "exit 2")]);
        host.path.truncate(1);
        let done = format_and_mount(&host, (Path::new("/d"), Path::new("/t")), "xfs", &[]).await;
        let told = done.unwrap_err().to_string();
        assert!(told.contains("exec: \"mkfs.xfs\": executable file not found in $PATH"), "{told}");
    }

    #[tokio::test]
    async fn a_device_is_formatted_once() {
        let dir = tempfile::tempdir().unwrap();
        let device = Loop::new(dir.path());
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        let host = Host::system();
        let mount =
            async |options: &[String]| format_and_mount(&host, (&device.0, &target), "ext4", options).await;
        let told = mount(&["ro".to_owned()]).await.unwrap_err();
        assert!(matches!(told, FormatError::ReadOnly(_)), "{told}");
        mount(&[]).await.unwrap();
        fs::write(target.join("file"), "x").unwrap();
        mounts::unmount_all_at(&target).unwrap();
        assert!(!target.join("file").exists());
        mount(&["ro".to_owned()]).await.unwrap();
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "x");
        assert!(fs::write(target.join("file"), "y").is_err());
        mounts::unmount_all_at(&target).unwrap();
    }
}
