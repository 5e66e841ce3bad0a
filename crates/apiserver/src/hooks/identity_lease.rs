//! The Lease by which this server is known beside others: its name comes from the host's, so that the next server of a
//! host takes its place. Leases of servers that are gone are removed after their time.

use std::sync::Arc;
use std::time::Duration;

use api::{Gate, Status};
use client::{Client, ListParams};
use component::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use sha2::{Digest, Sha256};

use super::env::Env;

const NAMESPACE: &str = "kube-system";
const IDENTITY: &str = "apiserver.kubernetes.io/identity";
const COMPONENT: &str = "kube-apiserver";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Upstream's times.
const LIFE_SECONDS: i32 = 3600;
const RENEW: Duration = Duration::from_secs(10);
const CLEAN_UP: Duration = Duration::from_hours(1);
/// The number of attempts to renew, after a conflict or a refusal, before the next time.
const TRIES: usize = 5;
/// The time for which the end waits until the Lease is gone.
const FAREWELL: Duration = Duration::from_secs(2);

/// The name of the Lease of a host's server, as upstream makes it.
fn name_of(hostname: &str) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut hash = Sha256::new();
    for part in [hostname, COMPONENT] {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        hash.update(length.to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let (mut name, mut bits, mut have) = ("apiserver-".to_owned(), 0u16, 0);
    for byte in &digest[..16] {
        bits = (bits << 8) | u16::from(*byte);
        have += 8;
        while have >= 5 {
            have -= 5;
            name.push(char::from(LETTERS[usize::from((bits >> have) & 31)]));
        }
        bits &= (1 << have) - 1;
    }
    name.push(char::from(LETTERS[usize::from((bits << (5 - have)) & 31)]));
    name
}

/// This server's Lease.
struct Identity {
    client: Client,
    clock: Clock,
    name: String,
    holder: String,
    hostname: String,
    /// The Lease as it was written last.
    latest: Option<Lease>,
}

impl Identity {
    fn renewed(&self, base: Option<&Lease>) -> Lease {
        let mut lease = base.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec { lease_duration_seconds: Some(LIFE_SECONDS), ..LeaseSpec::default() }),
        });
        let labels = lease.metadata.labels.get_or_insert_default();
        labels.insert(IDENTITY.to_owned(), COMPONENT.to_owned());
        labels.insert(HOSTNAME.to_owned(), self.hostname.clone());
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.holder.clone());
        spec.renew_time = Some(MicroTime(self.clock.now()));
        lease
    }

    /// Removes the Lease of the server that was here before: nobody should look for that one.
    async fn begin(&mut self) {
        let _ = self.client.api::<Lease>(NAMESPACE).delete(&self.name, None).await;
        self.renew().await;
    }

    async fn renew(&mut self) {
        for _ in 0..TRIES {
            match self.write().await {
                Ok(()) => return,
                Err(e) if e.is_conflict() || e.is_not_found() || e.is_already_exists() => self.latest = None,
                Err(error) => {
                    tracing::warn!(%error, name = self.name, "cannot renew this server's identity Lease");
                    return;
                }
            }
        }
    }

    async fn write(&mut self) -> Result<(), Status> {
        let api = self.client.api::<Lease>(NAMESPACE);
        if self.latest.is_none() {
            match api.get(&self.name).await {
                Ok(lease) => self.latest = Some(lease),
                Err(e) if e.is_not_found() => {
                    self.latest = Some(api.create(&self.renewed(None)).await?);
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        self.latest = Some(api.update(&self.renewed(self.latest.as_ref())).await?);
        Ok(())
    }
}

/// Makes this server's Lease, and renews it until shutdown, with which it goes.
pub(super) async fn run(env: &Env) -> Result<(), Status> {
    if !env.gates.enabled(Gate::APIServerIdentity) {
        return Ok(());
    }
    let name = name_of(&env.hostname);
    let mut identity = Identity {
        client: Client::new(Arc::clone(&env.transport), COMPONENT),
        clock: env.objects.clock,
        holder: format!("{name}_{}", uuid::Uuid::new_v4()),
        hostname: env.hostname.clone(),
        name,
        latest: None,
    };
    identity.begin().await;
    let stop = env.shutdown.clone();
    env.shutdown.spawn(async move {
        let renewing = async {
            loop {
                tokio::time::sleep(RENEW.mul_f64(1.0 + 0.04 * fastrand::f64())).await;
                identity.renew().await;
            }
        };
        stop.run(renewing).await;
        let leases = identity.client.api::<Lease>(NAMESPACE);
        let _ = tokio::time::timeout(FAREWELL, leases.delete(&identity.name, None)).await;
    });
    Ok(())
}

/// Whether a Lease has had its time. One that tells none is nobody's.
fn is_over(lease: &Lease, now: Timestamp) -> bool {
    let spec = lease.spec.as_ref();
    let end = spec.and_then(|s| {
        let life = SignedDuration::from_secs(s.lease_duration_seconds?.into());
        s.renew_time.as_ref()?.0.checked_add(life).ok()
    });
    end.is_none_or(|end| end < now)
}

/// Removes the Leases of servers that are gone, now and again until shutdown.
pub(super) fn clean_up(env: &Env) {
    if !env.gates.enabled(Gate::APIServerIdentity) {
        return;
    }
    let client = Client::new(Arc::clone(&env.transport), COMPONENT);
    let (clock, stop) = (env.objects.clock, env.shutdown.clone());
    env.shutdown.spawn(async move {
        let cleaning = async {
            let mut tick = tokio::time::interval(CLEAN_UP);
            loop {
                tick.tick().await;
                if let Err(error) = remove_old(&client, clock).await {
                    tracing::warn!(%error, "cannot remove the identity Leases of servers that are gone");
                }
            }
        };
        stop.run(cleaning).await;
    });
}

async fn remove_old(client: &Client, clock: Clock) -> Result<(), Status> {
    let leases = client.api::<Lease>(NAMESPACE);
    let own = ListParams { label_selector: format!("{IDENTITY}={COMPONENT}"), ..ListParams::default() };
    for lease in leases.list(&own).await?.items.iter().filter(|l| is_over(l, clock.now())) {
        match leases.delete(lease.metadata.name.as_deref().unwrap_or_default(), None).await {
            Err(e) if !e.is_not_found() => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names as upstream's server makes them of host names.
    #[test]
    fn names() {
        let check = |hostname: &str, want: &str| assert_eq!(name_of(hostname), want);
        check("", "apiserver-2ikcnb3wory4bpirwz777r2iv4");
        check("node-1", "apiserver-lgabes5ywnaqeagh5dny4zlzs4");
        check("kind-control-plane", "apiserver-c7uylvfxlbqccnk6myfkwetzze");
    }

    #[test]
    fn leases_have_their_time() {
        let now: Timestamp = "2026-01-01T02:00:00Z".parse().unwrap();
        let check = |renewed: Option<&str>, life: Option<i32>, over: bool| {
            let spec = LeaseSpec {
                renew_time: renewed.map(|t| MicroTime(t.parse().unwrap())),
                lease_duration_seconds: life,
                ..LeaseSpec::default()
            };
            assert_eq!(is_over(&Lease { spec: Some(spec), ..Lease::default() }, now), over, "{renewed:?}");
        };
        check(Some("2026-01-01T01:00:01Z"), Some(LIFE_SECONDS), false);
        check(Some("2026-01-01T00:59:59Z"), Some(LIFE_SECONDS), true);
        check(None, Some(LIFE_SECONDS), true);
        check(Some("2026-01-01T01:59:59Z"), None, true);
        assert!(is_over(&Lease::default(), now));
    }
}
