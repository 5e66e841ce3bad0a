//! From which ranges addresses may be given now.

use api::view::View;

use super::{Allocators, Cidr};

/// The name of the ServiceCIDR that the flags describe.
pub(crate) const DEFAULT: &str = "kubernetes";

/// Whether addresses may be given from a ServiceCIDR: it is not going, and nobody says that it is not ready. Where
/// nobody says anything, no controller manager runs that could.
fn is_ready(cidr: &View<'_>) -> bool {
    let mut conditions = cidr.st("status").items("conditions");
    let ready = conditions.find(|c| c.str("type") == "Ready");
    !cidr.st("metadata").has("deletionTimestamp") && ready.is_none_or(|c| c.str("status") == "True")
}

impl Allocators {
    /// The ranges of all ServiceCIDRs, and whether addresses may be given from each; the default one first. Before
    /// there is any, those that the flags tell.
    fn ranges(&self) -> Vec<(Cidr, bool)> {
        let mut all = Vec::new();
        for (object, tree) in self.decoded("networking.k8s.io", "servicecidrs") {
            let view = View::new(self.objects.schema(), &tree);
            let ready = is_ready(&view);
            // A CIDR that is too small to give any address is no range.
            let cidrs = view.st("spec").strs("cidrs").filter_map(|c| Cidr::parse(c).ok());
            let at = if object.data.name == DEFAULT { 0 } else { all.len() };
            all.splice(at..at, cidrs.map(|cidr| (cidr, ready)));
        }
        if all.is_empty() {
            all.extend(self.cidrs.iter().map(|cidr| (*cidr, true)));
        }
        all
    }
    /// The ranges of a family that addresses may be given from.
    pub(super) fn ready(&self, family: &str) -> Vec<Cidr> {
        let of_family = |(cidr, ready): (Cidr, bool)| (ready && cidr.family() == family).then_some(cidr);
        self.ranges().into_iter().filter_map(of_family).collect()
    }
    /// All ranges, also those that nothing more is given from.
    pub(super) fn all(&self) -> Vec<Cidr> {
        self.ranges().into_iter().map(|(cidr, _)| cidr).collect()
    }
}
