//! Parts of a description that this crate does not carry out: a container that asks for one is refused, by its name in
//! the OCI runtime specification.

use oci_spec::runtime::{Process, Spec};

use crate::error::{Error, Result};

/// Refuses a container that asks for something that would be left out.
///
/// The host's name is the sandbox's, and namespaces are, too: their paths say nothing here.
pub(crate) fn check(spec: &Spec) -> Result<()> {
    let linux = spec.linux().as_ref();
    let resources = linux.and_then(|l| l.resources().as_ref());
    let cpu = resources.and_then(|r| r.cpu().as_ref());
    let parts = [
        ("hostname", spec.hostname().is_some()),
        ("domainname", spec.domainname().is_some()),
        ("linux.netDevices", linux.is_some_and(|l| l.net_devices().as_ref().is_some_and(|d| !d.is_empty()))),
        ("linux.intelRdt", linux.is_some_and(|l| l.intel_rdt().is_some())),
        ("linux.memoryPolicy", linux.is_some_and(|l| l.memory_policy().is_some())),
        ("linux.personality", linux.is_some_and(|l| l.personality().is_some())),
        (
            "linux.timeOffsets",
            linux.is_some_and(|l| l.time_offsets().as_ref().is_some_and(|o| !o.is_empty())),
        ),
        ("linux.resources.rdma", resources.is_some_and(|r| r.rdma().as_ref().is_some_and(|d| !d.is_empty()))),
        ("linux.resources.network", resources.is_some_and(|r| r.network().is_some())),
        ("linux.resources.cpu.realtimeRuntime", cpu.is_some_and(|c| c.realtime_runtime().is_some())),
        ("linux.resources.cpu.realtimePeriod", cpu.is_some_and(|c| c.realtime_period().is_some())),
    ];
    refuse(&parts)?;
    spec.process().as_ref().map_or(Ok(()), process)
}

/// Refuses a further process that asks for something that would be left out.
pub(crate) fn process(process: &Process) -> Result<()> {
    refuse(&[("process.execCPUAffinity", process.exec_cpu_affinity().is_some())])
}

fn refuse(parts: &[(&str, bool)]) -> Result<()> {
    match parts.iter().find(|(_, asked)| *asked) {
        Some((name, _)) => {
            Err(Error::Invalid(format!("the container asks for {name}, which is not supported")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_refused_by_name() {
        let check = |text: &str, refused: Option<&str>| {
            let spec: Spec = serde_json::from_str(text).unwrap();
            let found = super::check(&spec).err().map(|e| e.to_string());
            assert_eq!(found, refused.map(|r| format!("the container asks for {r}, which is not supported")));
        };
        check(r#"{"ociVersion": "1.2.0"}"#, None);
        check(r#"{"ociVersion": "1.2.0", "hostname": "a"}"#, Some("hostname"));
        check(r#"{"ociVersion": "1.2.0", "hooks": {"prestart": [{"path": "/bin/true"}]}}"#, None);
        check(r#"{"ociVersion": "1.2.0", "linux": {"netDevices": {}}}"#, None);
        check(
            r#"{"ociVersion": "1.2.0", "linux": {"resources": {"cpu": {"realtimeRuntime": 5}}}}"#,
            Some("linux.resources.cpu.realtimeRuntime"),
        );
        let affine = r#"{"ociVersion": "1.2.0", "process": {"cwd": "/", "user": {"uid": 0, "gid": 0}, "execCPUAffinity": {"initial": "0"}}}"#;
        check(affine, Some("process.execCPUAffinity"));
    }
}
