//! Whole specifications.

use std::path::Path;

use super::*;

fn machine() -> Machine {
    Machine { kernel: (6, 1), capabilities: [Capability::SysAdmin].into(), ..Machine::default() }
}

struct Inputs {
    config: pb::ContainerConfig,
    pod: pb::PodSandboxConfig,
    image: ImageConfig,
    namespaces: Namespaces,
}

fn inputs() -> Inputs {
    let context = pb::LinuxContainerSecurityContext {
        masked_paths: vec!["/proc/kcore".into()],
        readonly_paths: vec!["/proc/sys".into()],
        seccomp: Some(pb::SecurityProfile::default()),
        ..Default::default()
    };
    let mut image = ImageConfig::default();
    image.set_cmd(Some(vec!["sh".into()])).set_user(Some("7:8".into()));
    Inputs {
        config: pb::ContainerConfig {
            metadata: Some(pb::ContainerMetadata { name: "app".into(), attempt: 0 }),
            linux: Some(pb::LinuxContainerConfig {
                resources: Some(pb::LinuxContainerResources { oom_score_adj: -997, ..Default::default() }),
                security_context: Some(context),
            }),
            ..Default::default()
        },
        pod: pb::PodSandboxConfig {
            metadata: Some(pb::PodSandboxMetadata {
                name: "web".into(),
                namespace: "default".into(),
                uid: "u".into(),
                attempt: 0,
            }),
            linux: Some(pb::LinuxPodSandboxConfig {
                cgroup_parent: "/pods/podu".into(),
                ..Default::default()
            }),
            ..Default::default()
        },
        image,
        namespaces: Namespaces {
            network: Place::At("/net".into()),
            pid: Place::New,
            ..Namespaces::default()
        },
    }
}

fn translated(inputs: &Inputs, machine: &Machine) -> Result<Translated, TranslateError> {
    let of = Container {
        id: "c",
        config: &inputs.config,
        pod: &inputs.pod,
        pod_id: "p",
        hostname: "web",
        image: &inputs.image,
        image_name: "test.local/app:1",
        accounts: &Accounts::default(),
        own: &[],
        volumes: &[],
        devices: &[],
        seccomp_file: &[],
        namespaces: &inputs.namespaces,
        categories: "c1,c2",
    };
    spec(&of, machine)
}

fn context(inputs: &mut Inputs) -> &mut pb::LinuxContainerSecurityContext {
    inputs.config.linux.as_mut().unwrap().security_context.as_mut().unwrap()
}

#[test]
fn a_plain_container() {
    let made = translated(&inputs(), &machine()).unwrap();
    let (process, linux) = (made.spec.process().clone().unwrap(), made.spec.linux().clone().unwrap());
    assert_eq!(process.args().as_deref(), Some(&["sh".to_owned()][..]));
    assert_eq!((process.user().uid(), process.user().gid()), (7, 8));
    assert_eq!(process.no_new_privileges(), Some(false));
    assert_eq!((process.oom_score_adj(), process.rlimits()), (Some(-997), &None));
    assert_eq!(linux.cgroups_path().as_deref(), Some(Path::new("/pods/podu/c")));
    assert_eq!(linux.masked_paths().as_deref(), Some(&["/proc/kcore".to_owned()][..]));
    assert_eq!(linux.readonly_paths().as_deref(), Some(&["/proc/sys".to_owned()][..]));
    assert!(linux.seccomp().is_some() && linux.uid_mappings().is_none());
    assert_eq!(made.spec.annotations().as_ref().unwrap()["io.kubernetes.cri.sandbox-name"], "web");
    assert_eq!(made.spec.root().as_ref().unwrap().readonly(), Some(false));
    // A runtime that may not lower scores gives the least that it may.
    let bound = Machine { least_oom_score: Some(100), ..machine() };
    let made = translated(&inputs(), &bound).unwrap();
    assert_eq!(made.spec.process().as_ref().unwrap().oom_score_adj(), Some(100));
}

#[test]
fn a_privileged_container() {
    let mut inputs = inputs();
    context(&mut inputs).privileged = true;
    let refused = translated(&inputs, &machine()).unwrap_err();
    assert_eq!(refused.to_string(), "no privileged container allowed in sandbox");
    let privileged = pb::LinuxSandboxSecurityContext { privileged: true, ..Default::default() };
    inputs.pod.linux.as_mut().unwrap().security_context = Some(privileged);
    let made = translated(&inputs, &machine()).unwrap();
    let linux = made.spec.linux().clone().unwrap();
    assert!(linux.seccomp().is_none());
    assert_eq!(linux.masked_paths().as_deref(), Some(&[][..]));
    assert_eq!(linux.resources().as_ref().unwrap().devices().as_ref().unwrap().len(), 1);
    let capabilities = made.spec.process().as_ref().unwrap().capabilities().clone().unwrap();
    assert_eq!(capabilities.effective().as_ref().unwrap(), &machine().capabilities);
}

#[test]
fn a_user_namespace() {
    let mut inputs = inputs();
    let one = pb::IdMapping { host_id: 65536, container_id: 0, length: 65536 };
    let options = pb::NamespaceOption {
        userns_options: Some(pb::UserNamespace {
            mode: pb::NamespaceMode::Pod.into(),
            uids: vec![one],
            gids: vec![one],
        }),
        ..Default::default()
    };
    context(&mut inputs).namespace_options = Some(options.clone());
    assert!(matches!(translated(&inputs, &machine()), Err(TranslateError::OtherUserNamespace)));
    let pod = pb::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
    inputs.pod.linux.as_mut().unwrap().security_context = Some(pod);
    let made = translated(&inputs, &machine()).unwrap();
    let uids = made.spec.linux().as_ref().unwrap().uid_mappings().clone().unwrap();
    assert_eq!((uids[0].host_id(), uids[0].size()), (65536, 65536));
}
