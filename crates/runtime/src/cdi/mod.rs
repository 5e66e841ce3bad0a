//! Devices of other programs' descriptions (the Container Device Interface): what they change in a specification.

mod spec;

use std::path::{Path, PathBuf};

use cri::runtime as pb;
use oci_spec::runtime::{Hook, Linux, LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType, Mount, Process, Spec};

use self::spec::{Devices, Edits, Node};
use crate::shell::devices;
use crate::translate::{TranslateError, set_variable};

/// The beginning of the annotations that name devices; kubelets before v1.28 know no other way.
const ANNOTATION: &str = "cdi.k8s.io/";

/// The devices that a configuration names.
fn names(config: &pb::ContainerConfig) -> Vec<String> {
    let mut all: Vec<String> = config.cdi_devices.iter().map(|one| one.name.clone()).collect();
    let mut annotations: Vec<_> =
        config.annotations.iter().filter(|(k, _)| k.starts_with(ANNOTATION)).collect();
    annotations.sort();
    for (_, value) in annotations {
        for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if !all.iter().any(|known| known == name) {
                all.push(name.to_owned());
            }
        }
    }
    all
}

/// Gives a container the devices that its configuration names.
pub(crate) fn inject(config: &pb::ContainerConfig, spec: &mut Spec) -> Result<(), TranslateError> {
    let names = names(config);
    if names.is_empty() {
        return Ok(());
    }
    for edits in Devices::load().edits(&names).map_err(TranslateError::Cdi)? {
        apply(&edits, spec)?;
    }
    Ok(())
}

fn apply(edits: &Edits, spec: &mut Spec) -> Result<(), TranslateError> {
    for (asked, what) in
        [(edits.intel_rdt.is_some(), "intelRdt"), (!edits.net_devices.is_empty(), "network interfaces")]
    {
        if asked {
            let text = format!("the device needs {what}, which the built-in container runtime does not have");
            return Err(TranslateError::Cdi(text));
        }
    }
    let mut process = spec.process().clone().unwrap_or_default();
    of_process(edits, &mut process);
    spec.set_process(Some(process));
    let mut linux = spec.linux().clone().unwrap_or_default();
    of_linux(edits, &mut linux)?;
    spec.set_linux(Some(linux));
    of_hooks(edits, spec)?;
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    for one in &edits.mounts {
        let mut made = Mount::default();
        let kind = if one.r#type.is_empty() { "bind" } else { &one.r#type };
        let mut options = one.options.clone();
        if kind == "bind" && !options.iter().any(|option| option == "bind" || option == "rbind") {
            options.push("rbind".to_owned());
        }
        made.set_destination(PathBuf::from(&one.container_path))
            .set_source(Some(PathBuf::from(&one.host_path)))
            .set_typ(Some(kind.to_owned()))
            .set_options(Some(options));
        // One mount a place: the device's counts.
        mounts.retain(|known| known.destination() != made.destination());
        mounts.push(made);
    }
    spec.set_mounts(Some(mounts));
    Ok(())
}

#[allow(deprecated, reason = "devices still describe the oldest kind of hook")]
fn of_hooks(edits: &Edits, spec: &mut Spec) -> Result<(), TranslateError> {
    if edits.hooks.is_empty() {
        return Ok(());
    }
    let mut hooks = spec.hooks().clone().unwrap_or_default();
    for one in &edits.hooks {
        let list = match one.hook_name.as_str() {
            "prestart" => hooks.prestart_mut(),
            "createRuntime" => hooks.create_runtime_mut(),
            "createContainer" => hooks.create_container_mut(),
            "startContainer" => hooks.start_container_mut(),
            "poststart" => hooks.poststart_mut(),
            "poststop" => hooks.poststop_mut(),
            other => {
                return Err(TranslateError::Cdi(format!(
                    "the device has a hook of the unknown name {other:?}"
                )));
            }
        };
        let mut made = Hook::default();
        made.set_path(PathBuf::from(&one.path))
            .set_args(Some(one.args.clone()).filter(|args| !args.is_empty()))
            .set_env(Some(one.env.clone()).filter(|env| !env.is_empty()))
            .set_timeout(one.timeout);
        list.get_or_insert_default().push(made);
    }
    spec.set_hooks(Some(hooks));
    Ok(())
}

fn of_process(edits: &Edits, process: &mut Process) {
    let mut env = process.env().clone().unwrap_or_default();
    // The user's directory stays behind a device's variables, where runc adds it.
    let home = env.pop_if(|last| last.starts_with("HOME="));
    for variable in &edits.env {
        set_variable(&mut env, variable.clone());
    }
    if let Some(home) = home.filter(|_| !env.iter().any(|known| known.starts_with("HOME="))) {
        env.push(home);
    }
    process.set_env(Some(env));
    let user = process.user_mut();
    let mut groups = user.additional_gids().clone().unwrap_or_default();
    for gid in edits.additional_gids.iter().filter(|gid| **gid != 0) {
        if !groups.contains(gid) {
            groups.push(*gid);
        }
    }
    user.set_additional_gids(Some(groups));
}

fn of_linux(edits: &Edits, linux: &mut Linux) -> Result<(), TranslateError> {
    let mut nodes = linux.devices().clone().unwrap_or_default();
    let mut limits = linux.resources().clone().unwrap_or_default();
    let mut rules = limits.devices().clone().unwrap_or_default();
    for one in &edits.device_nodes {
        let (node, rule) = device(one)?;
        nodes.retain(|known| known.path() != node.path());
        nodes.push(node);
        rules.extend(rule);
    }
    limits.set_devices(Some(rules));
    linux.set_devices(Some(nodes)).set_resources(Some(limits));
    Ok(())
}

/// A device's file, and the rule that lets it be used. The host's device says what the description leaves out.
fn device(one: &Node) -> Result<(LinuxDevice, Option<LinuxDeviceCgroup>), TranslateError> {
    let host = if one.host_path.is_empty() { &one.path } else { &one.host_path };
    let failed = |source| TranslateError::Device { path: host.clone(), source };
    let (mut kind, mut major, mut minor) = (one.r#type.clone(), one.major, one.minor);
    let (mut mode, mut uid, mut gid) = (one.file_mode, one.uid, one.gid);
    if kind.is_empty() || (major == 0 && kind != "p") {
        let known = devices::one(Path::new(host), Path::new(&one.path), "rwm").map_err(failed)?;
        let known = known.ok_or_else(|| failed(std::io::Error::other("it is no device")))?;
        kind = String::from(if known.block { "b" } else { "c" });
        (major, minor) = (i64::from(known.major), i64::from(known.minor));
        mode = mode.or(Some(known.mode));
        (uid, gid) = (uid.or(Some(known.uid)), gid.or(Some(known.gid)));
    }
    let typ = match kind.as_str() {
        "b" => LinuxDeviceType::B,
        "c" => LinuxDeviceType::C,
        "u" => LinuxDeviceType::U,
        "p" => LinuxDeviceType::P,
        other => {
            return Err(TranslateError::Cdi(format!("device {} has the unknown type {other:?}", one.path)));
        }
    };
    let mut node = LinuxDevice::default();
    node.set_path(PathBuf::from(&one.path))
        .set_typ(typ)
        .set_major(major)
        .set_minor(minor)
        .set_file_mode(mode)
        .set_uid(uid)
        .set_gid(gid);
    let rule = matches!(typ, LinuxDeviceType::B | LinuxDeviceType::C).then(|| {
        let access = if one.permissions.is_empty() { "rwm" } else { &one.permissions };
        let mut rule = LinuxDeviceCgroup::default();
        rule.set_allow(true)
            .set_typ(Some(typ))
            .set_major(Some(major))
            .set_minor(Some(minor))
            .set_access(Some(access.to_owned()));
        rule
    });
    Ok((node, rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_of_a_specification() {
        let edits: Edits = serde_json::from_str(
            r#"{"env":["A=2","C=3"],"additionalGids":[44],"deviceNodes":[{"path":"/dev/null","permissions":"r"}],
                "mounts":[{"hostPath":"/lib/x","containerPath":"/x","options":["ro"]}]}"#,
        )
        .unwrap();
        let mut spec = Spec::default();
        let env = ["A=1", "B=1", "HOME=/root"].map(str::to_owned);
        spec.set_process(Some(Process::default()));
        spec.process_mut().as_mut().unwrap().set_env(Some(env.into()));
        apply(&edits, &mut spec).unwrap();
        let process = spec.process().as_ref().unwrap();
        assert_eq!(process.env().as_ref().unwrap(), &["A=2", "B=1", "C=3", "HOME=/root"]);
        assert_eq!(process.user().additional_gids().as_deref(), Some(&[44][..]));
        let linux = spec.linux().as_ref().unwrap();
        let node = linux.devices().as_ref().unwrap().last().unwrap();
        assert_eq!((node.major(), node.minor()), (1, 3));
        let rule = linux.resources().as_ref().unwrap().devices().as_ref().unwrap().last().unwrap().clone();
        assert_eq!(rule.access().as_deref(), Some("r"));
        let mount = spec.mounts().as_ref().unwrap().last().unwrap();
        assert_eq!(mount.options().as_ref().unwrap().join(","), "ro,rbind");
        let hooks: Edits = serde_json::from_str(
            r#"{"hooks":[{"hookName":"poststop","path":"/h","timeout":3},
                {"hookName":"createContainer","path":"/n","args":["n","x"],"env":["A=1"]}]}"#,
        )
        .unwrap();
        apply(&hooks, &mut spec).unwrap();
        let seen = serde_json::to_value(spec.hooks()).unwrap();
        let expected = serde_json::json!({
            "createContainer": [{"path": "/n", "args": ["n", "x"], "env": ["A=1"]}],
            "poststop": [{"path": "/h", "timeout": 3}],
        });
        assert_eq!(seen, expected);
        let unknown: Edits = serde_json::from_str(r#"{"hooks":[{"hookName":"often","path":"/h"}]}"#).unwrap();
        assert!(apply(&unknown, &mut spec).unwrap_err().to_string().contains("unknown name \"often\""));
    }

    #[test]
    fn names_of_devices() {
        let config = pb::ContainerConfig {
            cdi_devices: vec![pb::CdiDevice { name: "v/c=0".into() }],
            annotations: [
                ("cdi.k8s.io/plugin".to_owned(), "v/c=1, v/c=0".to_owned()),
                ("other".to_owned(), "v/c=9".to_owned()),
            ]
            .into(),
            ..Default::default()
        };
        assert_eq!(names(&config), ["v/c=0", "v/c=1"]);
    }
}
