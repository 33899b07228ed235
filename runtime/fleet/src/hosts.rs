//! Determines which hosts a plan uses, and which files they need.

use super::fleet_error::FleetError;
use super::launcher::allocated_nodes;
use super::tree::{Tree, TreeError};
use flagperf_config::{LauncherChoice, Scale, Site};
use flagperf_plan::Plan;

/// Returns whether a plan needs agents and sessions: for other hosts, or for several devices.
pub fn needs_fleet(plan: &Plan) -> bool {
    plan.site.uses_other_hosts() || plan.cases.iter().any(|case| case.key.scale != Scale::ONE)
}

/// Returns the hosts of a run: those of `HOSTS`, or the nodes of the Slurm job.
pub(super) fn hosts_of(site: &Site) -> Result<Vec<String>, FleetError> {
    match (site.launcher, allocated_nodes()) {
        (LauncherChoice::Auto | LauncherChoice::Slurm, Some(nodes)) => nodes.map_err(FleetError::Nodes),
        (LauncherChoice::Slurm, None) => Err(FleetError::Nodes(
            "`LAUNCHER: slurm` is set, but this process does not run in a Slurm job\n  hint: run this command within `salloc`, \
             or submit it: `flagperf run --submit slurm | sbatch`"
                .to_owned(),
        )),
        _ => Ok(site.hosts.clone()),
    }
}

/// Returns the files of the checkout that the hosts of a plan need.
pub(super) fn tree_of(plan: &Plan) -> Result<Tree, TreeError> {
    let root = &plan.site.flagperf_path;
    let libraries = plan.cases.iter().flat_map(|case| &case.jobs).filter_map(|job| job.engine.library.clone());
    Tree::read(root, &plan.host_file.path, &libraries.collect::<Vec<_>>())
}
