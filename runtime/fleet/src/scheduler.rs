//! The table of schedulers: each writes the text of a job that runs the selected cases on a cluster.

use std::path::PathBuf;

use serde_json::json;

/// What a job runs, and on how many hosts and devices.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// Number of hosts.
    pub hosts: u32,
    /// Number of devices of each host.
    pub devices: u32,
    pub checkout: PathBuf,
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Time limit of the job in seconds.
    pub time_max_s: u64,
    /// The image in which a container scheduler runs the program.
    pub image: String,
}

/// A scheduler of a cluster. The user submits the job that it describes.
pub trait Scheduler: Send + Sync {
    /// Name for `--submit`.
    fn name(&self) -> &'static str;
    /// One-line description.
    fn about(&self) -> &'static str;
    /// Returns whether a job can use only one host.
    fn is_single_host(&self) -> bool {
        false
    }
    /// Returns the text of a job.
    fn job(&self, request: &JobRequest) -> String;
}

/// Every scheduler, by name.
pub fn schedulers() -> &'static [&'static dyn Scheduler] {
    &[&Kubernetes, &SlurmBatch]
}

/// Quotes words for a shell. They contain no zero bytes, because neither paths nor arguments can.
fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    shlex::Quoter::new().allow_nul(true).join(words).unwrap_or_default()
}

/// The batch script for `sbatch`.
struct SlurmBatch;

impl Scheduler for SlurmBatch {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn about(&self) -> &'static str {
        "a batch script for `sbatch`; the nodes of the job are the hosts"
    }

    fn job(&self, request: &JobRequest) -> String {
        let JobRequest { hosts, devices, time_max_s, .. } = request;
        let [checkout, program] = [&request.checkout, &request.program].map(|path| path.display().to_string());
        let words = std::iter::once(program.as_str()).chain(request.arguments.iter().map(String::as_str));
        let (checkout, command) = (quoted([checkout.as_str()]), quoted(words));
        let minutes = time_max_s.div_ceil(60);
        format!(
            "#!/bin/sh\n#SBATCH --job-name=flagperf\n#SBATCH --nodes={hosts}\n#SBATCH --ntasks-per-node=1\n\
             # No other job may share the nodes and disturb the measurement.\n#SBATCH --exclusive\n\
             #SBATCH --time={minutes}\n\
             #SBATCH --output=flagperf-%j.log\n\
             # If the cluster manages devices as a resource, remove one `#` from the next line.\n\
             ##SBATCH --gpus-per-node={devices}\n\
             # 120 s before the time limit, this signal makes the run stop and keep what it has measured.\n\
             #SBATCH --signal=B:INT@120\n\
             # Do not requeue the job when a node fails.\n#SBATCH --no-requeue\n\
             cd {checkout} || exit 2\nexec {command}\n"
        )
    }
}

/// The comment at the beginning of the manifest.
const KUBERNETES_NOTE: &str = "# Never tried on a cluster. The checkout, the program and the folder of --config must exist at the same paths on the\n\
# node; only the checkout is mounted. Replace `image` with an image that your cluster has, and request devices in\n\
# `resources`.\n";

/// The manifest of a Job for `kubectl apply`. It was never tried on a cluster.
struct Kubernetes;

impl Scheduler for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn about(&self) -> &'static str {
        "a Job on one host, for `kubectl apply`; validated against the published schema, but never run on a cluster"
    }

    fn is_single_host(&self) -> bool {
        true
    }

    fn job(&self, request: &JobRequest) -> String {
        let checkout = request.checkout.display().to_string();
        let command: Vec<String> =
            std::iter::once(request.program.display().to_string()).chain(request.arguments.iter().cloned()).collect();
        let job = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "flagperf", "labels": {"app.kubernetes.io/name": "flagperf"}},
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": request.time_max_s,
                "template": {
                    "metadata": {"labels": {"app.kubernetes.io/name": "flagperf"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "automountServiceAccountToken": false,
                        "containers": [{
                            "name": "flagperf",
                            "image": request.image,
                            "workingDir": checkout,
                            "command": command,
                            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                            "volumeMounts": [{"name": "checkout", "mountPath": checkout}],
                        }],
                        "volumes": [{"name": "checkout", "hostPath": {"path": checkout, "type": "Directory"}}],
                    },
                },
            },
        });
        let job = serde_yaml::to_string(&job).expect("a job is plain data");
        format!("{KUBERNETES_NOTE}{job}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> JobRequest {
        JobRequest {
            hosts: 2,
            devices: 8,
            checkout: "/shared/my checkout".into(),
            program: "/opt/flagperf".into(),
            arguments: ["run", "--plain", "--set", "flops=2*3"].map(str::to_owned).to_vec(),
            time_max_s: 3601,
            image: "debian:bookworm-slim".to_owned(),
        }
    }

    #[test]
    fn words_are_quoted_for_the_shell_of_a_batch_script() {
        let script = SlurmBatch.job(&request());
        assert!(
            script.ends_with("cd '/shared/my checkout' || exit 2\nexec /opt/flagperf run --plain --set 'flops=2*3'\n")
        );
        assert!(script.contains("#SBATCH --nodes=2\n") && script.contains("#SBATCH --time=61\n"), "{script}");
        assert_eq!(quoted(["it's"]), "\"it's\"");
    }

    #[test]
    fn names_are_lower_case_and_sorted() {
        let names: Vec<&str> = schedulers().iter().map(|scheduler| scheduler.name()).collect();
        assert_eq!(names, ["kubernetes", "slurm"]);
        assert!(
            schedulers().iter().all(|scheduler| !scheduler.about().is_empty() && !scheduler.job(&request()).is_empty())
        );
    }
}
