//! The other groups.

use api::view::View;
use serde_json::Value;

use super::core::load_balancer;
use super::{
    AGE, Column, Columns, Maker, NAME, containers, flag, human_duration, labels, number, or, requirements,
    selector, shown, some_of, text, wide,
};

pub(super) fn of(group: &str, resource: &str) -> Option<&'static Columns> {
    match (group, resource) {
        ("apps", _) => apps(resource),
        ("batch", _) => batch(resource),
        ("storage.k8s.io", _) => storage(resource),
        ("admissionregistration.k8s.io", _) => admission(resource),
        ("networking.k8s.io", _) => networking(resource),
        ("apiregistration.k8s.io", "apiservices") => {
            shown!([NAME, text("Service"), text("Available"), AGE], |m| {
                let service =
                    m.spec.opt("service").map(|s| format!("{}/{}", s.str("namespace"), s.str("name")));
                let available =
                    m.status.items("conditions").find(|c| c.str("type") == "Available").map_or_else(
                        || "Unknown".to_owned(),
                        |c| match c.str("status") {
                            "True" => "True".to_owned(),
                            other => format!("{other} ({})", c.str("reason")),
                        },
                    );
                [m.name(), service.unwrap_or_else(|| "Local".into()).into(), available.into(), m.age()]
            })
        }
        ("autoscaling", "horizontalpodautoscalers") => shown!(
            [
                NAME,
                text("Reference"),
                text("Targets"),
                text("MinPods"),
                text("MaxPods"),
                text("Replicas"),
                AGE,
            ],
            |m| {
                let target = m.spec.st("scaleTargetRef");
                let min =
                    m.spec.opt_int("minReplicas").map_or_else(|| "<unset>".to_owned(), |n| n.to_string());
                [
                    m.name(),
                    format!("{}/{}", target.str("kind"), target.str("name")).into(),
                    metrics(&m).into(),
                    min.into(),
                    m.spec.int("maxReplicas").into(),
                    m.status.int("currentReplicas").into(),
                    m.age(),
                ]
            }
        ),
        ("autoscaling", "scales") => {
            shown!([NAME, number("Desired"), number("Available"), AGE], |m| {
                [m.name(), m.spec.int("replicas").into(), m.status.int("replicas").into(), m.age()]
            })
        }
        ("certificates.k8s.io", "certificatesigningrequests") => shown!(
            [NAME, AGE, text("SignerName"), text("Requestor"), text("RequestedDuration"), text("Condition")],
            |m| [
                m.name(),
                m.age(),
                or(m.spec.str("signerName"), "<none>").into(),
                m.spec.str("username").into(),
                m.spec.opt_int("expirationSeconds").map_or_else(|| "<none>".into(), human_duration).into(),
                request_state(m.status).into(),
            ]
        ),
        ("certificates.k8s.io", "clustertrustbundles") => {
            shown!([NAME, text("SignerName")], |m| {
                [m.name(), or(m.spec.str("signerName"), "<none>").into()]
            })
        }
        ("certificates.k8s.io", "podcertificaterequests") => shown!(
            [
                NAME,
                text("PodName"),
                text("ServiceAccountName"),
                text("NodeName"),
                text("SignerName"),
                text("State"),
                text("UnverifiedUserAnnotations"),
            ],
            |m| {
                let mut last = m.status.items("conditions").map(|c| c.str("type"));
                let state = last.rfind(|t| matches!(*t, "Issued" | "Denied" | "Failed"));
                let spec = |field: &str| Value::from(m.spec.str(field));
                [
                    m.name(),
                    spec("podName"),
                    spec("serviceAccountName"),
                    spec("nodeName"),
                    spec("signerName"),
                    state.unwrap_or("Pending").into(),
                    or(&labels(m.spec.texts("unverifiedUserAnnotations")), "<none>").into(),
                ]
            }
        ),
        ("coordination.k8s.io", "leasecandidates") => {
            shown!([NAME, text("LeaseName"), text("BinaryVersion"), text("EmulationVersion"), AGE], |m| {
                let spec = |field: &str| Value::from(m.spec.str(field));
                [m.name(), spec("leaseName"), spec("binaryVersion"), spec("emulationVersion"), m.age()]
            })
        }
        ("scheduling.k8s.io", "workloads") => shown!([NAME, AGE], |m| [m.name(), m.age()]),
        ("scheduling.k8s.io", "podgroups") => {
            shown!([NAME, text("Policy"), text("Workload"), text("Status"), AGE], |m| {
                let policy = if m.spec.st("schedulingPolicy").has("gang") { "Gang" } else { "Basic" };
                let workload =
                    m.spec.opt("podGroupTemplateRef").map(|r| r.st("workload").str("workloadName"));
                [
                    m.name(),
                    policy.into(),
                    workload.unwrap_or("<none>").into(),
                    group_state(m.status).into(),
                    m.age(),
                ]
            })
        }
        ("internal.apiserver.k8s.io", "storageversions") => {
            shown!([NAME, text("CommonEncodingVersion"), text("StorageVersions"), AGE], |m| {
                let all: Vec<String> = m
                    .status
                    .items("storageVersions")
                    .map(|v| format!("{}={}", v.str("apiServerID"), v.str("encodingVersion")))
                    .collect();
                [
                    m.name(),
                    m.status.opt_str("commonEncodingVersion").unwrap_or("<unset>").into(),
                    or(&some_of(&all, 3), "<unset>").into(),
                    m.age(),
                ]
            })
        }
        ("storagemigration.k8s.io", "storageversionmigrations") => {
            shown!([Column { format: "", ..NAME }, text("Resource"), text("Status")], |m| {
                let of = m.spec.st("resource");
                let resource = match of.str("group") {
                    "" => of.str("resource").to_owned(),
                    group => format!("{}.{group}", of.str("resource")),
                };
                let known = ["Running", "Failed", "Succeeded"];
                let state = m.status.items("conditions").filter(|c| c.str("status") == "True");
                let state = state.map(|c| c.str("type")).rfind(|t| known.contains(t));
                [m.name(), resource.into(), state.unwrap_or("Unknown").into()]
            })
        }
        ("resource.k8s.io", "devicetaintrules") => {
            shown!([NAME, text("Key"), text("Value"), text("Effect"), text("TimeAdded"), AGE], |m| {
                let taint = m.spec.st("taint");
                let since = taint.opt_str("timeAdded").map_or_else(String::new, |t| m.since(t));
                let field = |name: &str| Value::from(taint.str(name));
                [m.name(), field("key"), field("value"), field("effect"), since.into(), m.age()]
            })
        }
        ("resource.k8s.io", "resourcepoolstatusrequests") => shown!(
            [
                NAME,
                text("Driver"),
                text("Total"),
                text("Available"),
                text("Allocated"),
                text("Unavailable"),
                text("Errors"),
                number("Pools"),
                text("Status"),
                text("Completed"),
            ],
            |m| pool_status(&m)
        ),
        ("coordination.k8s.io", "leases") => {
            shown!([NAME, text("Holder"), AGE], |m| [m.name(), m.spec.str("holderIdentity").into(), m.age()])
        }
        ("discovery.k8s.io", "endpointslices") => {
            shown!([NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE], |m| {
                let ports: Vec<String> = m
                    .object
                    .items("ports")
                    .map(|p| match (p.opt_int("port"), p.opt_str("name")) {
                        (Some(n), _) => n.to_string(),
                        (None, Some(name)) => name.to_owned(),
                        (None, None) => "*".into(),
                    })
                    .collect();
                let ends: Vec<String> = m
                    .object
                    .items("endpoints")
                    .flat_map(|e| e.strs("addresses").map(str::to_owned))
                    .collect();
                [
                    m.name(),
                    m.object.str("addressType").into(),
                    or(&some_of(&ports, 3), "<unset>").into(),
                    or(&some_of(&ends, 3), "<unset>").into(),
                    m.age(),
                ]
            })
        }
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => shown!(
            [
                NAME,
                text("PriorityLevel"),
                text("MatchingPrecedence"),
                text("DistinguisherMethod"),
                AGE,
                text("MissingPL")
            ],
            |m| {
                let dangling = m.status.items("conditions").find(|c| c.str("type") == "Dangling");
                [
                    m.name(),
                    m.spec.st("priorityLevelConfiguration").str("name").into(),
                    m.spec.int("matchingPrecedence").into(),
                    m.spec.opt("distinguisherMethod").map_or("<none>", |d| d.str("type")).into(),
                    m.age(),
                    dangling.map_or("?", |c| c.str("status")).into(),
                ]
            }
        ),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => shown!(
            [
                NAME,
                text("Type"),
                text("NominalConcurrencyShares"),
                text("Queues"),
                text("HandSize"),
                text("QueueLengthLimit"),
                AGE,
            ],
            |m| {
                let none = || Value::from("<none>");
                let limited = m.spec.opt("limited");
                let queuing = limited.and_then(|l| l.st("limitResponse").opt("queuing"));
                let queue = |name: &str| queuing.map_or_else(none, |q| q.int(name).into());
                [
                    m.name(),
                    m.spec.str("type").into(),
                    limited.map_or_else(none, |l| l.int("nominalConcurrencyShares").into()),
                    queue("queues"),
                    queue("handSize"),
                    queue("queueLengthLimit"),
                    m.age(),
                ]
            }
        ),
        ("node.k8s.io", "runtimeclasses") => {
            shown!([NAME, text("Handler"), AGE], |m| [m.name(), m.object.str("handler").into(), m.age()])
        }
        ("policy", "poddisruptionbudgets") => shown!(
            [NAME, text("Min Available"), text("Max Unavailable"), number("Allowed Disruptions"), AGE],
            |m| {
                let of = |name: &str| match m.spec.get(name) {
                    Some(api::Node::Int(i)) => i.to_string(),
                    Some(other) => other.as_str().to_owned(),
                    None => "N/A".into(),
                };
                [
                    m.name(),
                    of("minAvailable").into(),
                    of("maxUnavailable").into(),
                    m.status.int("disruptionsAllowed").into(),
                    m.age(),
                ]
            }
        ),
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => {
            shown!([NAME, text("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")], |m| {
                let role = m.object.st("roleRef");
                let of = |kind: &str| {
                    let all: Vec<String> = m
                        .object
                        .items("subjects")
                        .filter(|s| s.str("kind") == kind)
                        .map(|s| match kind {
                            "ServiceAccount" => format!("{}/{}", s.str("namespace"), s.str("name")),
                            _ => s.str("name").to_owned(),
                        })
                        .collect();
                    Value::from(all.join(", "))
                };
                [
                    m.name(),
                    format!("{}/{}", role.str("kind"), role.str("name")).into(),
                    m.age(),
                    of("User"),
                    of("Group"),
                    of("ServiceAccount"),
                ]
            })
        }
        ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => {
            shown!([NAME, AGE], |m| [m.name(), m.age()])
        }
        ("resource.k8s.io", "resourceclaims") => shown!([NAME, text("State"), AGE], |m| {
            let going = m.meta.has("deletionTimestamp");
            let mut states = Vec::from_iter(going.then_some("deleted"));
            if m.status.has("allocation") {
                states.push("allocated");
                if m.status.len("reservedFor") > 0 {
                    states.push("reserved");
                }
            } else if !going {
                states.push("pending");
            }
            [m.name(), states.join(",").into(), m.age()]
        }),
        ("resource.k8s.io", "resourceslices") => {
            shown!([NAME, text("Node"), text("Driver"), text("Pool"), AGE], |m| [
                m.name(),
                m.spec.str("nodeName").into(),
                m.spec.str("driver").into(),
                m.spec.st("pool").str("name").into(),
                m.age(),
            ])
        }
        ("scheduling.k8s.io", "priorityclasses") => {
            shown!([NAME, number("Value"), flag("Global-Default"), AGE, wide_zero("PreemptionPolicy")], |m| [
                m.name(),
                m.object.int("value").into(),
                m.object.bool("globalDefault").into(),
                m.age(),
                m.object.str("preemptionPolicy").into(),
            ])
        }
        _ => None,
    }
}

/// A column that upstream fills for wide output but shows always.
const fn wide_zero(name: &'static str) -> Column {
    text(name)
}

fn replicas_of(m: &Maker<'_>) -> i64 {
    m.spec.int("replicas")
}

fn apps(resource: &str) -> Option<&'static Columns> {
    match resource {
        "controllerrevisions" => shown!([NAME, text("Controller"), text("Revision"), AGE], |m| {
            let owner = m.meta.items("ownerReferences").find(|o| o.bool("controller")).map(|o| {
                let group = o.str("apiVersion").split_once('/').map_or("", |g| g.0);
                let kind = o.str("kind").to_lowercase();
                match (kind.as_str(), group) {
                    ("", _) => o.str("name").to_owned(),
                    (_, "") => format!("{kind}/{}", o.str("name")),
                    (_, group) => format!("{kind}.{group}/{}", o.str("name")),
                }
            });
            let revision = m.object.int("revision");
            [m.name(), owner.unwrap_or_else(|| "<none>".into()).into(), revision.into(), m.age()]
        }),
        "daemonsets" => shown!(
            [
                NAME,
                number("Desired"),
                number("Current"),
                number("Ready"),
                number("Up-to-date"),
                number("Available"),
                text("Node Selector"),
                AGE,
                wide("Containers"),
                wide("Images"),
                wide("Selector"),
            ],
            |m| {
                let template = m.spec.st("template").st("spec");
                let [names, images] = containers(template);
                let count = |name: &str| Value::from(m.status.int(name));
                [
                    m.name(),
                    count("desiredNumberScheduled"),
                    count("currentNumberScheduled"),
                    count("numberReady"),
                    count("updatedNumberScheduled"),
                    count("numberAvailable"),
                    labels(template.texts("nodeSelector")).into(),
                    m.age(),
                    names,
                    images,
                    selector(m.spec.opt("selector")).into(),
                ]
            }
        ),
        "deployments" => shown!(
            [
                NAME,
                text("Ready"),
                text("Up-to-date"),
                text("Available"),
                AGE,
                wide("Containers"),
                wide("Images"),
                wide("Selector"),
            ],
            |m| {
                let [names, images] = containers(m.spec.st("template").st("spec"));
                [
                    m.name(),
                    format!("{}/{}", m.status.int("readyReplicas"), replicas_of(&m)).into(),
                    m.status.int("updatedReplicas").into(),
                    m.status.int("availableReplicas").into(),
                    m.age(),
                    names,
                    images,
                    requirements(m.spec.st("selector")).unwrap_or_else(|| "<invalid>".into()).into(),
                ]
            }
        ),
        "replicasets" => shown!(
            [
                NAME,
                number("Desired"),
                number("Current"),
                number("Ready"),
                AGE,
                wide("Containers"),
                wide("Images"),
                wide("Selector"),
            ],
            |m| {
                let [names, images] = containers(m.spec.st("template").st("spec"));
                [
                    m.name(),
                    replicas_of(&m).into(),
                    m.status.int("replicas").into(),
                    m.status.int("readyReplicas").into(),
                    m.age(),
                    names,
                    images,
                    selector(m.spec.opt("selector")).into(),
                ]
            }
        ),
        "statefulsets" => {
            shown!([NAME, text("Ready"), AGE, wide("Containers"), wide("Images")], |m| {
                let [names, images] = containers(m.spec.st("template").st("spec"));
                let ready = format!("{}/{}", m.status.int("readyReplicas"), replicas_of(&m));
                [m.name(), ready.into(), m.age(), names, images]
            })
        }
        _ => None,
    }
}

fn batch(resource: &str) -> Option<&'static Columns> {
    match resource {
        "cronjobs" => shown!(
            [
                NAME,
                text("Schedule"),
                text("Timezone"),
                flag("Suspend"),
                number("Active"),
                text("Last Schedule"),
                AGE,
                wide("Containers"),
                wide("Images"),
                wide("Selector"),
            ],
            |m| {
                let job = m.spec.st("jobTemplate").st("spec");
                let [names, images] = containers(job.st("template").st("spec"));
                let suspend =
                    m.spec.opt_bool("suspend").map_or("<unset>", |s| if s { "True" } else { "False" });
                [
                    m.name(),
                    m.spec.str("schedule").into(),
                    m.spec.opt_str("timeZone").unwrap_or("<none>").into(),
                    suspend.into(),
                    m.status.len("active").into(),
                    m.status
                        .opt_str("lastScheduleTime")
                        .map_or_else(|| "<none>".into(), |t| m.since(t))
                        .into(),
                    m.age(),
                    names,
                    images,
                    selector(job.opt("selector")).into(),
                ]
            }
        ),
        "jobs" => shown!(
            [
                NAME,
                text("Status"),
                text("Completions"),
                text("Duration"),
                AGE,
                wide("Containers"),
                wide("Images"),
                wide("Selector"),
            ],
            |m| {
                let [names, images] = containers(m.spec.st("template").st("spec"));
                [
                    m.name(),
                    job_state(&m).into(),
                    completions(&m).into(),
                    job_duration(&m).into(),
                    m.age(),
                    names,
                    images,
                    selector(m.spec.opt("selector")).into(),
                ]
            }
        ),
        _ => None,
    }
}

fn job_state(m: &Maker<'_>) -> &'static str {
    let of = |kind: &str| m.status.items("conditions").find(|c| c.str("type") == kind);
    let is = |kind: &str| of(kind).is_some_and(|c| c.str("status") == "True");
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if m.meta.has("deletionTimestamp") => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(m: &Maker<'_>) -> String {
    let done = m.status.int("succeeded");
    match (m.spec.opt_int("completions"), m.spec.int("parallelism")) {
        (Some(all), _) => format!("{done}/{all}"),
        (None, n) if n > 1 => format!("{done}/1 of {n}"),
        (None, _) => format!("{done}/1"),
    }
}

fn job_duration(m: &Maker<'_>) -> String {
    let Some(start) = api::time::parse(m.status.str("startTime")) else { return String::new() };
    let end = api::time::parse(m.status.str("completionTime")).unwrap_or(m.now);
    human_duration(end.duration_since(start).as_secs())
}

fn networking(resource: &str) -> Option<&'static Columns> {
    match resource {
        "ingressclasses" => shown!([NAME, text("Controller"), text("Parameters"), AGE], |m| {
            let parameters = m.spec.opt("parameters").map(|p| {
                let kind = p.str("kind");
                match p.opt_str("apiGroup") {
                    Some(group) => format!("{kind}.{group}/{}", p.str("name")),
                    None => format!("{kind}/{}", p.str("name")),
                }
            });
            [
                default_name(&m, "ingressclass.kubernetes.io/is-default-class"),
                m.spec.str("controller").into(),
                parameters.unwrap_or_else(|| "<none>".into()).into(),
                m.age(),
            ]
        }),
        "ingresses" => {
            shown!([NAME, text("Class"), text("Hosts"), text("Address"), text("Ports"), AGE], |m| {
                [
                    m.name(),
                    m.spec.opt_str("ingressClassName").unwrap_or("<none>").into(),
                    hosts(m.spec).into(),
                    load_balancer(m.status).into(),
                    if m.spec.len("tls") > 0 { "80, 443" } else { "80" }.into(),
                    m.age(),
                ]
            })
        }
        // Upstream gives the age of these a cell, but no column.
        "ipaddresses" => shown!([NAME, text("ParentRef")], |m| {
            let parent = m.spec.opt("parentRef").map(|p| {
                let resource = api::status::qualified(p.str("group"), p.str("resource")).to_lowercase();
                match p.str("namespace") {
                    "" => format!("{resource}/{}", p.str("name")),
                    ns => format!("{resource}/{ns}/{}", p.str("name")),
                }
            });
            [m.name(), parent.unwrap_or_else(|| "<none>".into()).into(), m.age()]
        }),
        "networkpolicies" => shown!([NAME, text("Pod-Selector"), AGE], |m| {
            [m.name(), selector(Some(m.spec.st("podSelector"))).into(), m.age()]
        }),
        "servicecidrs" => shown!([NAME, text("CIDRs"), AGE], |m| {
            [m.name(), m.spec.strs("cidrs").collect::<Vec<_>>().join(",").into(), m.age()]
        }),
        _ => None,
    }
}

/// The first three hosts of an Ingress. What is not shown are rules, with a host or without.
fn hosts(spec: View<'_>) -> String {
    let mut shown = Vec::new();
    for rule in spec.items("rules") {
        if shown.len() == 3 {
            return format!("{} + {} more...", shown.join(","), spec.len("rules") - 3);
        }
        shown.extend(Some(rule.str("host")).filter(|h| !h.is_empty()));
    }
    or(&shown.join(","), "*").to_owned()
}

/// The name, marked if an annotation makes the class the default one.
fn default_name(m: &Maker<'_>, annotation: &str) -> Value {
    let default = m.meta.texts("annotations").any(|(k, v)| k == annotation && v == "true");
    format!("{}{}", m.meta.str("name"), if default { " (default)" } else { "" }).into()
}

fn storage(resource: &str) -> Option<&'static Columns> {
    match resource {
        "csidrivers" => shown!(
            [
                NAME,
                flag("AttachRequired"),
                flag("PodInfoOnMount"),
                flag("StorageCapacity"),
                text("TokenRequests"),
                flag("RequiresRepublish"),
                text("Modes"),
                AGE,
            ],
            |m| {
                let tokens = m.spec.has("tokenRequests").then(|| {
                    m.spec.items("tokenRequests").map(|t| t.str("audience")).collect::<Vec<_>>().join(",")
                });
                let modes = m.spec.strs("volumeLifecycleModes").collect::<Vec<_>>().join(",");
                [
                    m.name(),
                    m.spec.opt_bool("attachRequired").unwrap_or(true).into(),
                    m.spec.bool("podInfoOnMount").into(),
                    m.spec.bool("storageCapacity").into(),
                    tokens.unwrap_or_else(|| "<unset>".into()).into(),
                    m.spec.bool("requiresRepublish").into(),
                    or(&modes, "<none>").into(),
                    m.age(),
                ]
            }
        ),
        "csinodes" => {
            shown!([NAME, number("Drivers"), AGE], |m| [m.name(), m.spec.len("drivers").into(), m.age()])
        }
        "storageclasses" => shown!(
            [
                NAME,
                text("Provisioner"),
                text("ReclaimPolicy"),
                text("VolumeBindingMode"),
                text("AllowVolumeExpansion"),
                AGE,
            ],
            |m| [
                default_name(&m, "storageclass.kubernetes.io/is-default-class"),
                m.object.str("provisioner").into(),
                m.object.opt_str("reclaimPolicy").unwrap_or("Delete").into(),
                m.object.opt_str("volumeBindingMode").unwrap_or("Immediate").into(),
                m.object.bool("allowVolumeExpansion").into(),
                m.age(),
            ]
        ),
        "volumeattachments" => shown!(
            [
                NAME,
                Column { format: "name", ..text("Attacher") },
                text("PV"),
                text("Node"),
                flag("Attached"),
                AGE,
            ],
            |m| [
                m.name(),
                m.spec.str("attacher").into(),
                m.spec.st("source").str("persistentVolumeName").into(),
                m.spec.str("nodeName").into(),
                m.status.bool("attached").into(),
                m.age(),
            ]
        ),
        "volumeattributesclasses" => shown!([NAME, text("DriverName"), AGE], |m| {
            [
                default_name(&m, "storageclass.kubernetes.io/is-default-class"),
                m.object.str("driverName").into(),
                m.age(),
            ]
        }),
        _ => None,
    }
}

fn admission(resource: &str) -> Option<&'static Columns> {
    match resource {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            shown!([NAME, number("Webhooks"), AGE], |m| [m.name(), m.object.len("webhooks").into(), m.age()])
        }
        "validatingadmissionpolicies" => {
            shown!([NAME, number("Validations"), text("ParamKind"), AGE], |m| {
                [m.name(), m.spec.len("validations").into(), param_kind(&m), m.age()]
            })
        }
        "mutatingadmissionpolicies" => {
            shown!([NAME, number("Mutations"), text("ParamKind"), AGE], |m| {
                [m.name(), m.spec.len("mutations").into(), param_kind(&m), m.age()]
            })
        }
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
            shown!([NAME, text("PolicyName"), text("ParamRef"), AGE], |m| {
                let param = m.spec.opt("paramRef").map_or_else(
                    || "<unset>".to_owned(),
                    |p| match (p.str("namespace"), p.str("name")) {
                        (_, "") => p.opt("selector").map_or_else(|| "<unset>".into(), go_selector),
                        ("", name) => format!("*/{name}"),
                        (ns, name) => format!("{ns}/{name}"),
                    },
                );
                [m.name(), m.spec.str("policyName").into(), param.into(), m.age()]
            })
        }
        _ => None,
    }
}

/// A `LabelSelector` as Go's generated code prints it.
fn go_selector(s: View<'_>) -> String {
    let labels = s.texts("matchLabels").map(|(k, v)| format!("{k}: {v},")).collect::<Vec<_>>().concat();
    let expressions = s.items("matchExpressions").map(|e| {
        let values = e.strs("values").collect::<Vec<_>>().join(" ");
        let (key, operator) = (e.str("key"), e.str("operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let expressions = expressions.collect::<Vec<_>>().concat();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn param_kind(m: &Maker<'_>) -> Value {
    let kind = m.spec.opt("paramKind").map(|p| format!("{}/{}", p.str("apiVersion"), p.str("kind")));
    kind.unwrap_or_else(|| "<unset>".into()).into()
}

/// A certificate signing request's state.
fn request_state(status: View<'_>) -> String {
    let is = |kind: &str| status.items("conditions").any(|c| c.str("type") == kind);
    let mut state = match () {
        () if is("Denied") => "Denied",
        () if is("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if is("Failed") {
        state.push_str(",Failed");
    }
    if !status.str("certificate").is_empty() {
        state.push_str(",Issued");
    }
    state
}

/// A PodGroup's state.
fn group_state(status: View<'_>) -> &str {
    let of = |ty: &str| status.items("conditions").rfind(|c| c.str("type") == ty);
    match (of("DisruptionTarget"), of("PodGroupScheduled")) {
        (Some(c), _) => c.str("reason"),
        (None, Some(c)) if c.str("status") == "True" => "Scheduled",
        (None, Some(_)) => "Unschedulable",
        (None, None) => "Pending",
    }
}

/// A ResourcePoolStatusRequest: sums over its pools, unless it failed.
fn pool_status(m: &Maker<'_>) -> [Value; 10] {
    let done = m
        .status
        .items("conditions")
        .find(|c| matches!(c.str("type"), "Complete" | "Failed") && c.str("status") == "True");
    let failed = done.is_some_and(|c| c.str("type") == "Failed");
    let count = m.status.int("poolCount");
    let shown = m.status.len("pools");
    let state = match done.map(|c| c.str("type")) {
        Some("Complete") if count > shown as i64 => format!("Complete ({shown}/{count} pools)"),
        Some(state) => state.to_owned(),
        None => "Pending".to_owned(),
    };
    let sum = |field: &str| -> Value {
        if failed || m.status.raw().is_none() {
            return "-".into();
        }
        m.status.items("pools").map(|p| p.int(field)).sum::<i64>().to_string().into()
    };
    let errors: Value = if failed || m.status.raw().is_none() {
        "-".into()
    } else {
        m.status.items("pools").filter(|p| p.has("validationError")).count().to_string().into()
    };
    let completed = done.filter(|_| !failed).map(|c| m.since(c.str("lastTransitionTime")));
    [
        m.name(),
        m.spec.str("driver").into(),
        sum("totalDevices"),
        sum("availableDevices"),
        sum("allocatedDevices"),
        sum("unavailableDevices"),
        errors,
        count.into(),
        state.into(),
        completed.unwrap_or_else(|| "<none>".into()).into(),
    ]
}

/// The metrics of an autoscaler: current and target of the first two.
fn metrics(m: &Maker<'_>) -> String {
    let current: Vec<View<'_>> = m.status.items("currentMetrics").collect();
    let all: Vec<String> = m
        .spec
        .items("metrics")
        .enumerate()
        .map(|(i, spec)| {
            let field = match spec.str("type") {
                "External" => "external",
                "Pods" => "pods",
                "Object" => "object",
                "Resource" => "resource",
                "ContainerResource" => "containerResource",
                _ => return "<unknown type>".to_owned(),
            };
            let (source, target) = (spec.st(field), spec.st(field).st("target"));
            let now = current.get(i).and_then(|c| c.opt(field)).map(|c| c.st("current"));
            let unknown = || "<unknown>".to_owned();
            // Go's text of a quantity that is absent.
            let amount = |of: View<'_>, name: &str| of.opt_str(name).unwrap_or("<nil>").to_owned();
            let of = |name: &str| now.map_or_else(unknown, |n| amount(n, name));
            let known = |name: &str| now.and_then(|n| n.opt_str(name)).map_or_else(unknown, str::to_owned);
            let percent = |v: Option<i64>| v.map(|p| format!("{p}%"));
            match (field, target.opt_str("averageValue")) {
                ("resource" | "containerResource", want) => {
                    let (now, want) = match want {
                        Some(want) => (of("averageValue"), want.to_owned()),
                        None => (
                            percent(now.and_then(|n| n.opt_int("averageUtilization")))
                                .unwrap_or_else(unknown),
                            percent(target.opt_int("averageUtilization")).unwrap_or_else(|| "<auto>".into()),
                        ),
                    };
                    format!("{}: {now}/{want}", source.str("name"))
                }
                ("pods", _) => format!("{}/{}", of("averageValue"), amount(target, "averageValue")),
                (_, Some(want)) => format!("{}/{want} (avg)", known("averageValue")),
                (_, None) => format!("{}/{}", of("value"), amount(target, "value")),
            }
        })
        .collect();
    if all.len() > 2 {
        return format!("{} + {} more...", all[..2].join(", "), all.len() - 2);
    }
    or(&all.join(", "), "<none>").to_owned()
}
