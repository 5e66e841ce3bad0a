//! Tests of the host, with controllers of their own.

use client::Client;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use serde_json::json;

use super::*;
use crate::fake::{Cluster, eventually};

/// A controller that notes at which ConfigMaps it looked, and needs Secrets too.
struct Noting<const SECRETS: bool> {
    looked: Mutex<Vec<String>>,
    maps: Informer<ConfigMap>,
    _secrets: Option<Informer<Secret>>,
}

impl<const SECRETS: bool> Controller for Noting<SECRETS> {
    const NAME: &'static str = if SECRETS { "needs-secrets-controller" } else { "needs-maps-controller" };
    const ACCOUNT: &'static str = "noting";
    const QUEUE: &'static str = "noting";
    type Key = Key;
    fn new(host: &Host<Key>) -> Self {
        let secrets = SECRETS.then(|| host.informer());
        Self { looked: Mutex::default(), maps: host.informer(), _secrets: secrets }
    }
    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.maps, false);
    }
    async fn sync(&self, key: Key) -> Result<Next, Status> {
        self.looked.lock().push(key.name.to_string());
        match key.name.as_str() {
            "later" if self.looked.lock().len() < 3 => Ok(Next::After(Duration::from_mins(10))),
            "fails" => Err(Status::internal("it fails")),
            "hangs" => std::future::pending().await,
            _ => Ok(Next::Done),
        }
    }
}

fn map(cluster: &Cluster, name: &str) {
    let map = json!({"metadata": {"name": name, "namespace": "n"}});
    cluster.fake.put::<ConfigMap>(&serde_json::from_value(map).unwrap());
}

/// A resource that cannot be read (it is off, or forbidden) holds up the controllers that need it, and no others.
#[tokio::test(start_paused = true)]
async fn one_resource_that_is_off_holds_up_those_alone_who_need_it() {
    let cluster = Cluster::new();
    cluster.fake.refuse_watches("secrets");
    let shared = cluster.shared();
    let (maps, secrets) =
        (cluster.run_with::<Noting<false>>(&shared), cluster.run_with::<Noting<true>>(&shared));
    map(&cluster, "a");
    cluster.factory.start(&cluster.shutdown);
    eventually("it looks", || *maps.looked.lock() == ["a"]).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(secrets.looked.lock().is_empty(), "it does not know the secrets");
    cluster.fake.serve_watches("secrets");
    eventually("now it does", || *secrets.looked.lock() == ["a"]).await;
}

/// The real table behaves the same with `resourceclaims`, `servicecidrs` or any other resource that one controller
/// needs.
#[tokio::test(start_paused = true)]
async fn the_table_starts_without_a_resource() {
    let cluster = Cluster::new();
    cluster.fake.refuse_watches("servicecidrs");
    let shared = cluster.shared();
    let client = cluster.client.clone();
    start(&Choice::default(), &shared, &|_: &str| -> Client { client.clone() });
    let namespace = json!({"metadata": {"name": "n"}});
    cluster.fake.put::<Namespace>(&serde_json::from_value(namespace).unwrap());
    let fake = cluster.fake.clone();
    let account = || fake.get::<k8s_openapi::api::core::v1::ServiceAccount>("n", "default").is_some();
    eventually("the namespace has its account", account).await;
    let page = shared.metrics.page().text();
    for metric in [
        r#"running_managed_controllers{manager="kube-controller-manager",name="service-cidr-controller"} 1"#,
        r#"workqueue_adds_total{name="serviceaccount"} 1"#,
        r#"workqueue_work_duration_seconds_count{name="serviceaccount"} 1"#,
        r#"workqueue_depth{name="deployment"} 0"#,
    ] {
        assert!(page.contains(metric), "{metric} is not in\n{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn looks_lead_to_looks() {
    let cluster = Cluster::new();
    let shared = cluster.shared();
    let noting = cluster.run_with::<Noting<false>>(&shared);
    cluster.follow().await;
    map(&cluster, "later");
    eventually("a first look", || noting.looked.lock().len() == 1).await;
    tokio::time::sleep(Duration::from_mins(9)).await;
    assert_eq!(noting.looked.lock().len(), 1);
    tokio::time::sleep(Duration::from_mins(12)).await;
    assert_eq!(*noting.looked.lock(), ["later"; 3]);
    map(&cluster, "fails");
    eventually("it is tried again", || noting.looked.lock().iter().filter(|n| *n == "fails").count() > 3)
        .await;
    let page = shared.metrics.page().text();
    let retries = page.lines().find(|l| l.starts_with("workqueue_retries_total")).unwrap();
    assert!(!retries.ends_with(" 0"), "{retries}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_stuck_is_told() {
    let cluster = Cluster::new();
    let shared = cluster.shared();
    let noting = cluster.run_with::<Noting<false>>(&shared);
    cluster.follow().await;
    map(&cluster, "hangs");
    eventually("it hangs", || !noting.looked.lock().is_empty()).await;
    let healthy = || shared.health.answers().iter().all(|(_, answer)| answer.is_ok());
    assert!(healthy());
    tokio::time::sleep(STUCK + Duration::from_secs(1)).await;
    let (name, answer) = shared.health.answers().remove(0);
    assert_eq!(name, Noting::<false>::NAME);
    assert_eq!(answer, Err("a worker has been at one key for too long".to_owned()));
    let page = shared.metrics.page().text();
    assert!(page.contains("workqueue_longest_running_processor_seconds{name=\"noting\"} 18"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn only_those_that_are_chosen_run() {
    let cluster = Cluster::new();
    let shared = cluster.shared();
    let client = cluster.client.clone();
    let choice = Choice::parse(["*", "-serviceaccount"]).unwrap();
    start(&choice, &shared, &|_: &str| -> Client { client.clone() });
    let namespace = json!({"metadata": {"name": "n"}});
    cluster.fake.put::<Namespace>(&serde_json::from_value(namespace).unwrap());
    let fake = cluster.fake.clone();
    eventually("the authorities are published", || fake.get::<ConfigMap>("n", "kube-root-ca.crt").is_some())
        .await;
    assert!(fake.list::<k8s_openapi::api::core::v1::ServiceAccount>().is_empty());
    let page = shared.metrics.page().text();
    assert!(
        page.contains("name=\"namespace-controller\"} 1") && !page.contains("name=\"serviceaccount"),
        "{page}"
    );
}

/// Objects that an informer cannot decode are counted in the metrics.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_is_told() {
    let cluster = Cluster::new();
    let shared = cluster.shared();
    let noting = cluster.run_with::<Noting<false>>(&shared);
    let client = cluster.client.clone();
    start(&Choice::parse(["root-ca-cert-publisher"]).unwrap(), &shared, &|_: &str| -> Client {
        client.clone()
    });
    cluster.fake.put_value("configmaps", &json!({"metadata": {"name": "odd", "namespace": "n"}, "data": 7}));
    map(&cluster, "a");
    eventually("others are seen", || *noting.looked.lock() == ["a"]).await;
    let page = shared.metrics.page().text();
    let metric = r#"ferrokube_informer_undecoded_total{group="",resource="configmaps",type="ConfigMap",selection=""} 1"#;
    assert!(page.contains(metric), "{page}");
}
