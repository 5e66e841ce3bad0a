//! Metrics of what is stored, read when somebody asks.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use storage::{Scope, Store};

use crate::objects::Objects;
use crate::process_metrics::gauge;

/// How many objects there are of each resource.
pub(crate) struct ObjectCounts(pub(crate) Arc<Objects>);

impl fmt::Debug for ObjectCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObjectCounts")
    }
}

impl Collector for ObjectCounts {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let count = |id| ConstGauge::new(self.0.store.snapshot(id).count(&Scope::default(), None) as i64);
        let catalog = self.0.catalog();
        let counts: Vec<_> = catalog
            .resources
            .all_stored()
            .filter_map(|r| Some(((&r.group, &r.plural), count(r.stored.as_ref()?.id))))
            .collect();
        let help = "[ALPHA] Number of stored objects at the time of last check split by kind";
        let mut family =
            out.encode_descriptor("apiserver_resource_objects", help, None, MetricType::Gauge)?;
        for ((group, plural), count) in &counts {
            let labels = [("group", group.as_str()), ("resource", plural.as_str())];
            count.encode(family.encode_family(&labels)?)?;
        }
        let help = "[STABLE] (Deprecated since 1.34.0) Number of stored objects at the time of last check split by kind";
        let mut family = out.encode_descriptor("apiserver_storage_objects", help, None, MetricType::Gauge)?;
        for ((group, plural), count) in &counts {
            let full = api::status::qualified(group, plural);
            count.encode(family.encode_family(&[("resource", full.as_str())])?)?;
        }
        Ok(())
    }
}

/// The size of a store of this process.
#[derive(Debug)]
pub(crate) struct StoreSize {
    /// Where its files are.
    pub(crate) dir: PathBuf,
    /// The figures of the memory.
    pub(crate) store: Store,
}

impl Collector for StoreSize {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(usage) = self.store.usage() {
            // The metrics that etcd has of itself, by its names.
            let help = "Bytes of the objects in the store, which count against its quota";
            gauge(&mut out, "etcd_mvcc_db_total_size_in_use_in_bytes", help, usage.live as f64)?;
            let help = "Bytes of replaced and deleted objects that are kept in memory for watches and lists of the past";
            gauge(&mut out, "ferrokube_store_history_bytes", help, usage.history as f64)?;
            let help = "How many bytes of objects may be in the store; 0 for any";
            gauge(&mut out, "etcd_server_quota_backend_bytes", help, usage.quota.unwrap_or(0) as f64)?;
        }
        let Ok(files) = fs::read_dir(&self.dir) else { return Ok(()) };
        let size = files.filter_map(|f| f.ok()?.metadata().ok()).map(|m| m.len()).sum::<u64>();
        let help = "[STABLE] Size of the storage database file physically allocated in bytes";
        let gauge = ConstGauge::new(size as f64);
        let mut of =
            out.encode_descriptor("apiserver_storage_size_bytes", help, None::<&Unit>, gauge.metric_type())?;
        gauge.encode(of.encode_family(&[("storage_cluster_id", "etcd-0")])?)
    }
}
