//! The SELinux labels with which file systems are mounted (upstream: `pkg/volume/util/selinux.go`); pure but for [`read`].

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod, SELinuxOptions};

use crate::pods::spec;

/// The label that files of containers have on this node, by its policy; none where SELinux is off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileLabel(Option<String>);

/// Reads it below a machine's root directory.
pub(crate) fn read(root: &Path) -> FileLabel {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    if !root.join("sys/fs/selinux/enforce").exists() {
        return FileLabel(None);
    }
    let policy = setting(&text("etc/selinux/config"), "SELINUXTYPE").unwrap_or_else(|| "targeted".to_owned());
    // A policy's name is that of a directory.
    let sane = !policy.contains('/') && !policy.starts_with('.');
    let contexts = text(&format!("etc/selinux/{policy}/contexts/lxc_contexts"));
    FileLabel(setting(&contexts, "file").filter(|_| sane))
}

/// The value of a setting, without quotes.
fn setting(text: &str, name: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let mut own = pairs.filter(|(key, _)| key.trim() == name);
    own.next().map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

impl FileLabel {
    /// The label of the files of a process with these options. Only its user and level are the files', too.
    ///
    /// DIFFERENCE: without a level upstream takes one by chance, which no process has; here there is no label then.
    fn of(&self, options: &SELinuxOptions) -> Option<String> {
        let parts: Vec<&str> = self.0.as_deref()?.splitn(4, ':').collect();
        let [user, role, kind, _] = parts[..] else { return None };
        let given = |part: &'_ Option<String>| part.clone().filter(|part| !part.is_empty());
        let level = given(&options.level)?;
        let user = given(&options.user).unwrap_or_else(|| user.to_owned());
        Some(format!("{user}:{role}:{kind}:{level}"))
    }
}

/// The options of the containers that mount a Pod's volume.
fn options<'a>(pod: &'a Pod, volume: &'a str) -> impl Iterator<Item = &'a SELinuxOptions> {
    let of_pod = spec::spec(pod).security_context.as_ref().and_then(|c| c.se_linux_options.as_ref());
    let containers = spec::containers(pod).iter().chain(spec::init_containers(pod));
    let mounts = move |c: &&k8s_openapi::api::core::v1::Container| {
        c.volume_mounts.iter().flatten().any(|mount| mount.name == volume)
    };
    containers.filter(mounts).filter_map(move |container| {
        let own = container.security_context.as_ref().and_then(|c| c.se_linux_options.as_ref());
        own.or(of_pod)
    })
}

/// Whether a volume is mounted with a label; `all`: upstream's gate `SELinuxMount`, without which only volumes for a single
/// Pod are.
pub(crate) fn is_labelled(volume: &PersistentVolume, all: bool) -> bool {
    let modes = volume.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default();
    all || modes == [objects::volumes::READ_WRITE_ONCE_POD]
}

/// The label with which a Pod's volume is mounted; none where the Pod asks for none, or for files to be labelled one by one.
///
/// # Errors
/// Its containers ask for several; upstream's text.
pub(crate) fn label(pod: &Pod, volume: &str, files: &FileLabel) -> Result<Option<String>, String> {
    let context = spec::spec(pod).security_context.as_ref();
    if context.and_then(|c| c.se_linux_change_policy.as_deref()) == Some("Recursive") {
        return Ok(None);
    }
    let labels: BTreeSet<String> = options(pod, volume).filter_map(|options| files.of(options)).collect();
    // Users choose their levels, and the label becomes an option of a mount: a quote would end it and begin another.
    if let Some(odd) = labels.iter().find(|label| !label.bytes().all(is_of_label)) {
        return Err(format!("invalid SELinux label {}", api::go::quote(odd)));
    }
    if labels.len() > 1 {
        let labels: Vec<String> = labels.into_iter().collect();
        return Err(format!("multiple SELinux labels found: {}", labels.join(",")));
    }
    Ok(labels.into_iter().next())
}

/// Whether a byte can stand in a label: in names, and in levels such as `s0-s0:c0.c1023`.
fn is_of_label(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.:,".contains(&byte)
}

/// The option of a mount with a label; upstream's form.
pub(crate) fn option(label: &str) -> String {
    format!("context={label:?}")
}

/// The label among a mount's options, as the kernel tells them.
pub(crate) fn of_mount(options: &str) -> Option<String> {
    let (_, rest) = options.split_once("context=")?;
    match rest.strip_prefix('"') {
        // Levels have commas, so the kernel quotes labels as callers do.
        Some(quoted) => quoted.split('"').next().map(str::to_owned),
        None => rest.split(',').next().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const BASE: &str = "system_u:object_r:container_file_t:s0";

    #[test]
    fn labels_of_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("etc/selinux/config", "# words\nSELINUX=enforcing\nSELINUXTYPE=own\n");
        put(
            "etc/selinux/own/contexts/lxc_contexts",
            "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\n",
        );
        assert_eq!(read(dir.path()), FileLabel(None), "it is off");
        put("sys/fs/selinux/enforce", "1");
        assert_eq!(read(dir.path()), FileLabel(Some(BASE.into())));
        put("etc/selinux/config", "SELINUXTYPE=../own\n");
        assert_eq!(read(dir.path()), FileLabel(None));
    }

    /// Upstream's cases of `Test_AddPodToVolume_WithEmptyPluginName` and of the SELinux tables in
    /// desired_state_of_world_test.go, and more.
    #[test]
    fn labels_of_volumes() {
        let check = |pod: Value, containers: Value, expected: Result<Option<&str>, &str>| {
            let mut spec = json!({"containers": containers});
            spec["securityContext"] = pod;
            let pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
            let got = label(&pod, "v", &FileLabel(Some(BASE.into())));
            let got = got.as_ref().map(Option::as_deref).map_err(String::as_str);
            assert_eq!(got, expected, "{spec}");
            assert_eq!(label(&pod, "v", &FileLabel(None)), Ok(None));
        };
        let mounts = || json!([{"name": "v", "mountPath": "/v"}]);
        let plain = || json!({"name": "c", "volumeMounts": mounts()});
        let own = |options: Value| json!({"name": "d", "volumeMounts": mounts(), "securityContext": {"seLinuxOptions": options}});
        let of_pod = |level: &str| json!({"seLinuxOptions": {"level": level}});
        let one = "system_u:object_r:container_file_t:s0:c1,c2";
        check(json!({}), json!([plain()]), Ok(None));
        check(of_pod("s0:c1,c2"), json!([plain(), plain()]), Ok(Some(one)));
        check(of_pod("s0:c1,c2"), json!([{"name": "e"}]), Ok(None));
        check(json!({}), json!([own(json!({"level": "s0:c1,c2", "type": "spc_t"}))]), Ok(Some(one)));
        check(
            json!({}),
            json!([own(json!({"level": "s0", "user": "me"}))]),
            Ok(Some("me:object_r:container_file_t:s0")),
        );
        check(json!({}), json!([own(json!({"type": "container_t"}))]), Ok(None));
        let mut recursive = of_pod("s0:c1,c2");
        recursive["seLinuxChangePolicy"] = json!("Recursive");
        check(recursive, json!([plain()]), Ok(None));
        let several = "multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,c2,system_u:object_r:container_file_t:s0:c3";
        check(of_pod("s0:c1,c2"), json!([plain(), own(json!({"level": "s0:c3"}))]), Err(several));
        for level in ["s0\",suid,x=\"", "s0 ", "s0\\", "s0\n", "é"] {
            let label = api::go::quote(&format!("system_u:object_r:container_file_t:{level}"));
            check(of_pod(level), json!([plain()]), Err(&format!("invalid SELinux label {label}")));
        }
        let user = json!({"level": "s0", "user": "\",suid,x=\""});
        let odd = api::go::quote("\",suid,x=\":object_r:container_file_t:s0");
        check(json!({}), json!([own(user)]), Err(&format!("invalid SELinux label {odd}")));
    }

    /// Upstream's cases of `TestVolumeSupportsSELinuxMount`.
    #[test]
    fn volumes_with_labels() {
        let check = |modes: &[&str], all: bool, expected: bool| {
            let volume = json!({"spec": {"accessModes": modes}});
            assert_eq!(
                is_labelled(&serde_json::from_value(volume).unwrap(), all),
                expected,
                "{modes:?} {all}"
            );
        };
        check(&["ReadWriteOncePod"], false, true);
        check(&["ReadWriteOnce"], false, false);
        check(&["ReadWriteOncePod", "ReadWriteOnce"], false, false);
        check(&["ReadWriteMany"], true, true);
    }

    #[test]
    fn labels_of_mounts() {
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        assert_eq!(option(label), "context=\"system_u:object_r:container_file_t:s0:c1,c2\"");
        assert_eq!(of_mount(&format!("rw,{},noatime", option(label))).as_deref(), Some(label));
        assert_eq!(of_mount("rw,context=a:b:c:s0,noatime").as_deref(), Some("a:b:c:s0"));
        assert_eq!(of_mount("rw,seclabel"), None);
    }
}
