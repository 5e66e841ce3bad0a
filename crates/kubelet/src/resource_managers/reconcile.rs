//! Containers that run follow what others are given.

use std::sync::Arc;

use cri::runtime as pb;
use tokio::time::MissedTickBehavior;

use super::ResourceManagers;
use crate::cpu_manager::CpuSet;
use crate::pods::spec;
use crate::pods::worker::Worker;
use crate::runtime::CallError;

/// A container that runs on other processors than it should.
struct Wrong {
    uid: String,
    name: String,
    /// CRI id.
    id: String,
    cpus: CpuSet,
}

impl ResourceManagers {
    /// Looks again and again whether containers run on the processors that they should; does nothing where all share
    /// all.
    pub(crate) async fn reconcile(self: &Arc<Self>) {
        if self.state.lock().cpu.is_none() && self.state.lock().memory.is_none() {
            return;
        }
        let period = self.options.reconcile.max(std::time::Duration::from_millis(10));
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.free_orphans();
            self.save().await;
            for worker in self.workers.all().iter().filter(|w| w.active()) {
                for wrong in self.wrong(worker) {
                    if let Err(error) = self.update(&wrong).await {
                        let error = error.message();
                        tracing::warn!(uid = wrong.uid, container = wrong.name, error, "processors not set");
                    }
                }
            }
        }
    }

    /// The running containers of a Pod that the runtime was told other processors for, or none yet by this process.
    fn wrong(&self, worker: &Worker) -> Vec<Wrong> {
        let (pod, observed) = {
            let state = worker.state.lock();
            (state.pod.clone(), state.observed.clone())
        };
        let state = self.state.lock();
        if state.cpu.is_none() {
            return Vec::new();
        }
        let of_pod = state.told.get(&worker.uid);
        let mut all = Vec::new();
        for container in spec::init_containers(&pod).iter().chain(spec::containers(&pod)) {
            let Some(running) = observed.container(&container.name).filter(|s| s.running()) else { continue };
            let cpus = state.cpus.of_or_shared(&worker.uid, &container.name);
            let told = of_pod.and_then(|all| all.get(&container.name));
            if !cpus.is_empty() && told != Some(cpus) {
                let (uid, name) = (worker.uid.clone(), container.name.clone());
                all.push(Wrong { uid, name, id: running.id.clone(), cpus: cpus.clone() });
            }
        }
        all
    }

    async fn update(&self, wrong: &Wrong) -> Result<(), CallError> {
        let linux = pb::LinuxContainerResources { cpuset_cpus: wrong.cpus.to_string(), ..Default::default() };
        let request = pb::UpdateContainerResourcesRequest {
            container_id: wrong.id.clone(),
            linux: Some(linux),
            ..Default::default()
        };
        self.runtime.of(&wrong.uid).update_container_resources(request).await?;
        let mut state = self.state.lock();
        state.told.entry(wrong.uid.clone()).or_default().insert(wrong.name.clone(), wrong.cpus.clone());
        Ok(())
    }
}
