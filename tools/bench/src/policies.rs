//! Network policies in the kernel's packet filter: full start, start of the next process, a new Pod, a changed policy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use client::FromJson;
use netlink::nft::Filter;
use policy::{Enforcer, Event, PodView, PolicyView, SpaceView};
use serde_json::{Value, json};

/// The namespaces over which Pods and policies are spread.
const SPACES: u32 = 10;
/// The applications of a namespace: a policy selects one, and allows others.
const APPS: u32 = 100;
/// How many new Pods, and changes of policies, are measured.
const TIMES: u32 = 100;

fn view<T: FromJson>(object: &Value) -> Result<Arc<T>> {
    T::from_json(object.to_string().as_bytes()).map(Arc::new).map_err(|status| anyhow::anyhow!("{status}"))
}

fn pod(number: u32) -> Result<Event> {
    let (space, app) = (number % SPACES, number / SPACES % APPS);
    let ip = format!("10.{}.{}.{}", 100 + number / 62_500, number / 250 % 250, number % 250 + 1);
    let object = json!({
        "metadata": {"namespace": format!("n{space}"), "name": format!("p{number}"),
            "labels": {"app": app.to_string(), "tier": (app % 3).to_string()}},
        "spec": {"nodeName": "n0", "containers": []},
        "status": {"podIPs": [{"ip": ip}]},
    });
    Ok(Event::Pod(view::<PodView>(&object)?))
}

fn policy(number: u32, port: u32) -> Result<Event> {
    let (space, app) = (number % SPACES, number / SPACES % APPS);
    let of = |app: u32| json!({"podSelector": {"matchLabels": {"app": app.to_string()}}});
    let object = json!({
        "metadata": {"namespace": format!("n{space}"), "name": format!("p{number}")},
        "spec": {
            "podSelector": {"matchLabels": {"app": app.to_string()}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [of((app + 1) % APPS), of((app + 2) % APPS)], "ports": [{"port": port}]}],
            "egress": [{"to": [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "192.0.2.0/24"}}]}],
        },
    });
    Ok(Event::Policy(view::<PolicyView>(&object)?))
}

/// Measures in the network namespace of this thread.
pub(crate) fn measure(pods: u32, policies: u32) -> Result<()> {
    let mut filter = Filter::open()?;
    let mut events = Vec::new();
    for space in 0..SPACES {
        let object = json!({"metadata": {"name": format!("n{space}"), "labels": {"a": "b"}}});
        events.push(Event::Space(view::<SpaceView>(&object)?));
    }
    for number in 0..pods {
        events.push(pod(number)?);
    }
    for number in 0..policies {
        events.push(policy(number, 80)?);
    }
    let mut start = || -> Result<_> {
        let began = Instant::now();
        let mut enforcer = Enforcer::new("bench-policies", "n0");
        events.iter().cloned().for_each(|event| enforcer.apply(event));
        let changes = enforcer.sync(&mut filter)?;
        Ok((enforcer, changes, began.elapsed()))
    };
    let (_, changes, first) = start()?;
    let (mut enforcer, nothing, next) = start()?;
    println!("{policies} network policies, {pods} Pods of the node");
    println!(
        "  full start            {first:>10.1?}  {} elements, {} chains and sets",
        changes.added, changes.objects
    );
    println!("  start of the next     {next:>10.1?}  {} elements", nothing.added);
    let mut time = |what: &str, events: Vec<Event>| -> Result<()> {
        let mut times = Vec::new();
        for event in events {
            let began = Instant::now();
            enforcer.apply(event);
            enforcer.sync(&mut filter)?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or(Duration::ZERO);
        println!("  {what:<20}  {:>10.1?}  median, {:.1?} p99", at(50), at(99));
        Ok(())
    };
    time("a new Pod", (pods..pods + TIMES).map(pod).collect::<Result<_>>()?)?;
    time("a policy changes", (0..TIMES.min(policies)).map(|n| policy(n, 81)).collect::<Result<_>>()?)?;
    Ok(())
}
