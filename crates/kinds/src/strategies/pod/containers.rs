//! Containers of a pod.

use std::collections::HashSet;

use api::Gate;
use api::field::{Errors, Path, Raw};
use api::names;
use api::view::View;

use super::env;
use super::options::Options;
use super::paths;
use super::references::pull_policy;
use super::resources::{Claims, Whose, requirements};
use super::security;
use super::volumes::Volumes;
use crate::validation::print;

/// The parts of a pod against which its containers are checked.
pub(super) struct Pod<'a> {
    pub(super) spec: View<'a>,
    pub(super) volumes: Volumes<'a>,
    pub(super) claims: Claims<'a>,
    pub(super) grace: Option<i64>,
    pub(super) host_users: bool,
    pub(super) o: Options<'a>,
}

/// Checks `spec.containers`.
pub(super) fn regular(errs: &mut Errors, at: &Path<'_>, p: &Pod<'_>) {
    if p.spec.len("containers") == 0 {
        errs.required(at, "");
        return;
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, c) in p.spec.items("containers").enumerate() {
        let at = at.index(i);
        common(errs, &at, c, p);
        let name = c.str("name");
        if seen.contains(&name) {
            errs.duplicate(&at.field("name"), name);
        } else {
            seen.insert(name);
        }
        if let Some(l) = c.opt("lifecycle") {
            lifecycle(errs, &at.field("lifecycle"), l, p);
        }
        probes(errs, &at, c, p);
        if p.o.gate(Gate::ContainerRestartRules) {
            restart_policy(errs, &at, c, p);
        } else if c.has("restartPolicy") {
            errs.forbidden(&at.field("restartPolicy"), "may not be set for non-init containers");
        }
    }
    let mut taken = HashSet::new();
    for (i, c) in p.spec.items("containers").enumerate() {
        host_ports(errs, &at.index(i), c, &mut taken);
    }
}

/// Checks `spec.initContainers`.
pub(super) fn init(errs: &mut Errors, at: &Path<'_>, p: &Pod<'_>) {
    let mut seen: HashSet<&str> = p.spec.items("containers").map(|c| c.str("name")).collect();
    for (i, c) in p.spec.items("initContainers").enumerate() {
        let idx = at.index(i);
        common(errs, &idx, c, p);
        let policy = c.opt_str("restartPolicy");
        let always = policy == Some("Always");
        if policy.is_none() {
            if c.len("restartPolicyRules") > 0 {
                errs.required(&idx.field("restartPolicy"), RULES_NEED_POLICY);
            }
        } else if p.o.gate(Gate::ContainerRestartRules) {
            if !always || p.o.gate(Gate::RestartAllContainersOnContainerExits) {
                restart_policy(errs, &idx, c, p);
            } else if c.len("restartPolicyRules") > 0 {
                errs.forbidden(
                    &idx.field("restartPolicyRules"),
                    "restartPolicyRules are not allowed for init containers with restart policy Always",
                );
            }
        } else if !always {
            errs.not_supported(&idx.field("restartPolicy"), policy.unwrap_or_default(), &["Always"]);
        }
        let name = c.str("name");
        if seen.contains(&name) {
            errs.duplicate(&idx.field("name"), name);
        } else if !name.is_empty() {
            seen.insert(name);
        }
        // Upstream looks at each container alone, and so counts from zero.
        host_ports(errs, &at.index(0), c, &mut HashSet::new());
        if always {
            if let Some(l) = c.opt("lifecycle") {
                lifecycle(errs, &idx.field("lifecycle"), l, p);
            }
            probes(errs, &idx, c, p);
        } else {
            for f in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if c.has(f) {
                    errs.forbidden(
                        &idx.field(f),
                        "may not be set for init containers without restartPolicy=Always",
                    );
                }
            }
            if !p.o.restart_of_plain_init {
                let at = idx.field("resizePolicy");
                for (j, r) in c.items("resizePolicy").enumerate() {
                    if r.str("restartPolicy") == "RestartContainer" {
                        let at = at.index(j);
                        errs.invalid(
                            &at.field("restartPolicy"),
                            "RestartContainer",
                            "must not be set to 'RestartContainer' for non-sidecar initContainers",
                        );
                    }
                }
            }
        }
    }
}

const EPHEMERAL_NOT: &[&str] = &[
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Checks `spec.ephemeralContainers`.
pub(super) fn ephemeral(errs: &mut Errors, at: &Path<'_>, p: &Pod<'_>) {
    const NOT: &str = "cannot be set for an Ephemeral Container";
    let others: HashSet<&str> =
        p.spec.items("containers").chain(p.spec.items("initContainers")).map(|c| c.str("name")).collect();
    let mut seen = others.clone();
    for (i, c) in p.spec.items("ephemeralContainers").enumerate() {
        let at = at.index(i);
        common(errs, &at, c, p);
        image_whitespace(errs, &at, c);
        let name = c.str("name");
        if seen.contains(&name) {
            errs.duplicate(&at.field("name"), name);
        } else {
            seen.insert(name);
        }
        let target = c.str("targetContainerName");
        if !target.is_empty() && !others.contains(&target) {
            errs.not_found(&at.field("targetContainerName"), target);
        }
        for f in EPHEMERAL_NOT {
            // Upstream asks whether Go's field is its zero value; only `resources` is no pointer, list or map.
            let bare = |n: &api::Node| n.as_struct().is_some_and(api::Struct::is_bare);
            if c.as_written(f).is_some_and(|n| *f != "resources" || !bare(n)) {
                errs.forbidden(&at.field(f), NOT);
            }
        }
        let mounts = at.field("volumeMounts");
        for (j, m) in c.items("volumeMounts").enumerate() {
            let at = mounts.index(j);
            for f in ["subPath", "subPathExpr"] {
                if !m.str(f).is_empty() {
                    errs.forbidden(&at.field(f), NOT);
                }
            }
        }
    }
}

/// Reports spaces around an image's name, which templates may have.
pub(super) fn image_whitespace(errs: &mut Errors, at: &Path<'_>, c: View<'_>) {
    let image = c.str("image");
    if image.trim() != image {
        errs.invalid(&at.field("image"), image, "must not have leading or trailing whitespace");
    }
}

fn common(errs: &mut Errors, at: &Path<'_>, c: View<'_>, p: &Pod<'_>) {
    let name = c.str("name");
    if name.is_empty() {
        errs.required(&at.field("name"), "");
    } else {
        errs.each(&at.field("name"), name, names::dns1123_label(name));
    }
    if c.str("image").is_empty() {
        errs.required(&at.field("image"), "");
    }
    match c.str("terminationMessagePolicy") {
        "File" | "FallbackToLogsOnError" => {}
        "" => errs.required(&at.field("terminationMessagePolicy"), ""),
        other => {
            errs.not_supported(
                &at.field("terminationMessagePolicy"),
                other,
                &["File", "FallbackToLogsOnError"],
            );
        }
    }
    ports(errs, &at.field("ports"), c);
    env::env(errs, &at.field("env"), c, &p.o);
    env::env_from(errs, &at.field("envFrom"), c, &p.o);
    mounts(errs, &at.field("volumeMounts"), c, p);
    devices(errs, &at.field("volumeDevices"), c, p);
    pull_policy(errs, &at.field("imagePullPolicy"), c.str("imagePullPolicy"));
    requirements(errs, &at.field("resources"), c.st("resources"), Whose::Container, Some(&p.claims), &p.o);
    resize_policy(errs, &at.field("resizePolicy"), c, p.spec.str("restartPolicy"));
    if let Some(sc) = c.opt("securityContext") {
        security::of_container(errs, &at.field("securityContext"), sc, p.host_users, p.o.ctx.privileged);
    }
}

fn ports(errs: &mut Errors, at: &Path<'_>, c: View<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, port) in c.items("ports").enumerate() {
        let at = at.index(i);
        let name = port.str("name");
        if !name.is_empty() {
            let bad = names::port_name(name);
            if !bad.is_empty() {
                errs.each(&at.field("name"), name, bad);
            } else if seen.contains(&name) {
                errs.duplicate(&at.field("name"), name);
            } else {
                seen.insert(name);
            }
        }
        let number = port.int("containerPort");
        if number == 0 {
            errs.required(&at.field("containerPort"), "");
        } else {
            port_number(errs, &at.field("containerPort"), number);
        }
        let host = port.int("hostPort");
        if host != 0 {
            port_number(errs, &at.field("hostPort"), host);
        }
        let protocol = port.str("protocol");
        if protocol.is_empty() {
            errs.required(&at.field("protocol"), "");
        } else {
            errs.one_of(&at.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        }
    }
}

fn port_number(errs: &mut Errors, at: &Path<'_>, n: i64) {
    for msg in names::port_number(n) {
        errs.invalid(at, n, msg);
    }
}

/// Checks a port by number or name.
pub(crate) fn port_or_name(errs: &mut Errors, at: &Path<'_>, port: Option<&api::Node>) {
    match port {
        Some(api::Node::Str(s)) => errs.each(at, s, names::port_name(s)),
        n => port_number(errs, at, n.and_then(api::Node::as_int).unwrap_or(0)),
    }
}

fn host_ports(errs: &mut Errors, at: &Path<'_>, c: View<'_>, taken: &mut HashSet<String>) {
    let at = at.field("ports");
    for (i, port) in c.items("ports").enumerate() {
        let number = port.int("hostPort");
        if number == 0 {
            continue;
        }
        let key = format!("{}/{}/{number}", port.str("protocol"), port.str("hostIP"));
        if taken.contains(&key) {
            let at = at.index(i);
            errs.duplicate(&at.field("hostPort"), key);
        } else {
            taken.insert(key);
        }
    }
}

fn mounts(errs: &mut Errors, at: &Path<'_>, c: View<'_>, p: &Pod<'_>) {
    let mut points: HashSet<&str> = HashSet::new();
    let device_names: HashSet<&str> = c.items("volumeDevices").map(|d| d.str("name")).collect();
    let device_paths: HashSet<&str> = c.items("volumeDevices").map(|d| d.str("devicePath")).collect();
    for (i, m) in c.items("volumeMounts").enumerate() {
        let idx = at.index(i);
        let (name, path) = (m.str("name"), m.str("mountPath"));
        if name.is_empty() {
            errs.required(&idx.field("name"), "");
        }
        if !p.volumes.contains_key(name) {
            errs.not_found(&idx.field("name"), name);
        }
        if path.is_empty() {
            errs.required(&idx.field("mountPath"), "");
        }
        if !points.insert(path) {
            errs.invalid(&idx.field("mountPath"), path, "must be unique");
        }
        if device_names.contains(name) {
            errs.invalid(&idx.field("name"), name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(path) {
            errs.invalid(&idx.field("mountPath"), path, "must not already exist as a path in volumeDevices");
        }
        let (sub, expr) = (m.str("subPath"), m.str("subPathExpr"));
        if !sub.is_empty() {
            paths::local_descending(errs, &at.field("subPath"), sub);
        }
        if !expr.is_empty() {
            if !sub.is_empty() {
                errs.invalid(
                    &idx.field("subPathExpr"),
                    expr,
                    "subPathExpr and subPath are mutually exclusive",
                );
            }
            paths::local_descending(errs, &at.field("subPathExpr"), expr);
        }
        if let Some(prop) = m.opt_str("mountPropagation") {
            let at = at.field("mountPropagation");
            errs.one_of(&at, prop, &["Bidirectional", "HostToContainer", "None"]);
            if prop == "Bidirectional" && !c.st("securityContext").bool("privileged") {
                errs.forbidden(
                    &at,
                    "Bidirectional mount propagation is available only to privileged containers",
                );
            }
        }
        if let Some(rro) = m.opt_str("recursiveReadOnly") {
            let at = at.field("recursiveReadOnly");
            match rro {
                "Disabled" => {}
                "Enabled" | "IfPossible" => {
                    if !m.bool("readOnly") {
                        errs.forbidden(&at, "may only be specified when readOnly is true");
                    }
                    if m.opt_str("mountPropagation").is_some_and(|p| p != "None") {
                        errs.forbidden(
                            &at,
                            "may only be specified when mountPropagation is None or not specified",
                        );
                    }
                }
                other => errs.not_supported(&at, other, &["Disabled", "Enabled", "IfPossible"]),
            }
        }
    }
}

fn devices(errs: &mut Errors, at: &Path<'_>, c: View<'_>, p: &Pod<'_>) {
    let (mut names_seen, mut paths): (HashSet<&str>, HashSet<&str>) = (HashSet::new(), HashSet::new());
    let mount_names: HashSet<&str> = c.items("volumeMounts").map(|m| m.str("name")).collect();
    let mount_paths: HashSet<&str> = c.items("volumeMounts").map(|m| m.str("mountPath")).collect();
    for (i, d) in c.items("volumeDevices").enumerate() {
        let at = at.index(i);
        let (name, path) = (d.str("name"), d.str("devicePath"));
        let volume = p.volumes.get(name).copied();
        if name.is_empty() {
            errs.required(&at.field("name"), "");
        }
        if names_seen.contains(&name) {
            errs.invalid(&at.field("name"), name, "must be unique");
        }
        match volume {
            Some(v) if !v.has("persistentVolumeClaim") && !v.has("ephemeral") => errs.invalid(
                &at.field("name"),
                name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            Some(_) => {}
            None => errs.not_found(&at.field("name"), name),
        }
        if path.is_empty() {
            errs.required(&at.field("devicePath"), "");
        }
        if paths.contains(&path) {
            errs.invalid(&at.field("devicePath"), path, "must be unique");
        }
        if path.split('/').any(|s| s == "..") {
            errs.invalid(&at.field("devicePath"), path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path);
        }
        if mount_names.contains(name) {
            errs.invalid(&at.field("name"), name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(path) {
            errs.invalid(&at.field("devicePath"), path, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names_seen.insert(name);
        }
    }
}

fn resize_policy(errs: &mut Errors, at: &Path<'_>, c: View<'_>, pod_policy: &str) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, r) in c.items("resizePolicy").enumerate() {
        let (name, policy) = (r.str("resourceName"), r.str("restartPolicy"));
        if seen.contains(&name) {
            errs.duplicate(&at.index(i), name);
        }
        seen.insert(name);
        for (value, valid) in [(name, ["cpu", "memory"]), (policy, ["NotRequired", "RestartContainer"])] {
            if value.is_empty() {
                errs.required(at, "");
            } else {
                errs.one_of(at, value, &valid);
            }
        }
        if pod_policy == "Never" && policy != "NotRequired" {
            errs.invalid(at, policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

const RULES_NEED_POLICY: &str = "must specify restartPolicy when restart rules are used";

fn restart_policy(errs: &mut Errors, at: &Path<'_>, c: View<'_>, p: &Pod<'_>) {
    let rules = c.len("restartPolicyRules");
    match c.opt_str("restartPolicy") {
        None if rules == 0 => return,
        None => errs.required(&at.field("restartPolicy"), RULES_NEED_POLICY),
        Some(policy) => errs.one_of(&at.field("restartPolicy"), policy, &["Always", "Never", "OnFailure"]),
    }
    let list = at.field("restartPolicyRules");
    if rules > 20 {
        errs.too_many(&list, rules, 20);
    }
    let actions: &[&str] = if p.o.gate(Gate::RestartAllContainersOnContainerExits) {
        &["Restart", "RestartAllContainers"]
    } else {
        &["Restart"]
    };
    for (i, r) in c.items("restartPolicyRules").enumerate() {
        let at = list.index(i);
        errs.one_of(&at.field("action"), r.str("action"), actions);
        let codes_at = at.field("exitCodes");
        match r.opt("exitCodes") {
            None => errs.required(&codes_at, "must be specified"),
            Some(codes) => {
                errs.one_of(&codes_at.field("operator"), codes.str("operator"), &["In", "NotIn"]);
                if codes.len("values") > 255 {
                    errs.too_many(&codes_at.field("values"), codes.len("values"), 255);
                }
            }
        }
    }
}

fn probes(errs: &mut Errors, at: &Path<'_>, c: View<'_>, p: &Pod<'_>) {
    for f in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = c.opt(f) else { continue };
        let at = at.field(f);
        handler(errs, &at, probe, p, true);
        for n in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            errs.non_negative(&at.field(n), probe.int(n));
        }
        let grace = probe.opt_int("terminationGracePeriodSeconds");
        if let Some(g) = grace
            && g <= 0
        {
            errs.invalid(&at.field("terminationGracePeriodSeconds"), g, "must be greater than 0");
        }
        if f == "readinessProbe" {
            if let Some(g) = grace {
                errs.invalid(
                    &at.field("terminationGracePeriodSeconds"),
                    g,
                    "must not be set for readinessProbes",
                );
            }
        } else if probe.int("successThreshold") != 1 {
            errs.invalid(&at.field("successThreshold"), probe.int("successThreshold"), "must be 1");
        }
    }
}

fn handler(errs: &mut Errors, at: &Path<'_>, h: View<'_>, p: &Pod<'_>, probe: bool) {
    let mut count = 0;
    let fields: &[&str] = if probe {
        &["exec", "httpGet", "tcpSocket", "grpc"]
    } else {
        &["exec", "httpGet", "tcpSocket", "sleep"]
    };
    for f in fields {
        let Some(x) = h.opt(f) else { continue };
        let at = at.field(f);
        count += 1;
        if count > 1 {
            errs.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        match *f {
            "exec" => {
                if x.len("command") == 0 {
                    errs.required(&at.field("command"), "");
                }
            }
            "httpGet" => {
                if x.str("path").is_empty() {
                    errs.required(&at.field("path"), "");
                }
                port_or_name(errs, &at.field("port"), x.get("port"));
                errs.one_of(&at.field("scheme"), x.str("scheme"), &["HTTP", "HTTPS"]);
                for header in x.items("httpHeaders") {
                    let name = header.str("name");
                    errs.each(&at.field("httpHeaders"), name, names::http_header_name(name));
                }
            }
            "sleep" => {
                let seconds = x.int("seconds");
                if let Some(grace) = p.grace
                    && !(0..=grace).contains(&seconds)
                {
                    errs.invalid(
                        &at,
                        seconds,
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
                    );
                }
            }
            _ => port_or_name(errs, &at.field("port"), x.get("port")),
        }
    }
    if count == 0 {
        errs.required(at, "must specify a handler type");
    }
}

fn lifecycle(errs: &mut Errors, at: &Path<'_>, l: View<'_>, p: &Pod<'_>) {
    for f in ["postStart", "preStop"] {
        if let Some(h) = l.opt(f) {
            handler(errs, &at.field(f), h, p, false);
        }
    }
    if let Some(signal) = l.opt_str("stopSignal") {
        let at = at.field("stopSignal");
        match p.spec.opt("os").map(|o| o.str("name")) {
            None => errs.forbidden(&at, "may not be set for containers with empty `spec.os.name`"),
            Some("windows") => errs.one_of(&at, signal, &["SIGKILL", "SIGTERM"]),
            Some("linux") => {
                // The schema lists the signals that the field may hold.
                let known = l.raw().and_then(|s| {
                    let ty = l.schema.st(s.id);
                    ty.field("stopSignal").map(|no| &ty.at(no).values)
                });
                if let Some(known) = known.filter(|k| !k.is_empty() && !k.iter().any(|v| v == signal)) {
                    let all: Vec<&str> = known.iter().map(api::Text::as_str).collect();
                    errs.not_supported(&at, signal, &all);
                }
            }
            Some(_) => {}
        }
    }
}

/// Checks the claims that the pod declares.
pub(super) fn resource_claims(errs: &mut Errors, at: &Path<'_>, meta: Option<View<'_>>, spec: View<'_>) {
    let mirror =
        meta.and_then(|m| m.map("annotations")).is_some_and(|a| a.get(super::annotations::MIRROR).is_some());
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, c) in spec.items("resourceClaims").enumerate() {
        if mirror {
            errs.forbidden(&Path::root(""), "static pods do not support resource claims");
            continue;
        }
        let at = at.index(i);
        let name = c.str("name");
        if name.is_empty() {
            errs.required(&at.field("name"), "");
        } else if seen.contains(&name) {
            errs.duplicate(&at.field("name"), name);
        } else {
            errs.each(&at.field("name"), name, names::dns1123_label(name));
            seen.insert(name);
        }
        let (claim, template) = (c.opt_str("resourceClaimName"), c.opt_str("resourceClaimTemplateName"));
        let all = || Raw(c.raw().map(|s| print::internal(c.schema, s)).unwrap_or_default());
        if claim.is_some() && template.is_some() {
            errs.invalid(
                &at,
                all(),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            );
        }
        if claim.is_none() && template.is_none() {
            errs.invalid(&at, all(), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`");
        }
        for (f, v) in [("resourceClaimName", claim), ("resourceClaimTemplateName", template)] {
            if let Some(v) = v {
                errs.each(&at.field(f), v, names::name_subdomain(v, false));
            }
        }
    }
}
