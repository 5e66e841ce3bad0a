//! Labels and annotations by which Pods are found again in the runtime; upstream's names.

/// Name of the container.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Name of the Pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Namespace of the Pod.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// uid of the Pod.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Hash of the container's specification.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// How often the container was restarted.
pub const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// The termination message's path in the container.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Where the termination message comes from.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// The container's preStop hook, as JSON, for when the Pod's object is gone.
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// The container's ports, as JSON.
pub const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
/// The Pod's grace period when it was made.
pub const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// The Pod's grace period of deletion.
pub const POD_DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
/// Where the Pod comes from (`api`, `file`).
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Of a mirror Pod: the hash of the static Pod that it stands for.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// The hash of a static Pod's manifest.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// When the kubelet saw the Pod first.
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// Annotation of a sandbox: the root directory of the kubelet that made it. Several kubelets may share a runtime.
pub const ROOT_ANNOTATION: &str = "ferrokube.io/kubelet-root";
