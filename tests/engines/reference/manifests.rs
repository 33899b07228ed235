//! The check of Kubernetes manifests accepts a Job and names what is wrong with others.

use crate::support::{self, kubernetes};

const JOB: &str = "apiVersion: batch/v1
kind: Job
metadata: {name: a-job}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
        - {name: a-container, image: an-image, command: [sleep, '1']}
";

#[test]
fn a_job_is_accepted_and_faults_of_others_are_named() {
    let Some(python) = support::python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let faults = |text: String| {
        let path = folder.path().join("job.yaml");
        std::fs::write(&path, text).unwrap();
        kubernetes::job_faults(&python, &path).replace(&format!("{}: ", path.display()), "")
    };
    assert_eq!(faults(JOB.to_owned()), "");
    let unknown = faults(JOB.replace("parallelism", "paralelism"));
    assert!(unknown.contains("'paralelism' was unexpected"), "{unknown}");
    let wrong_type = faults(JOB.replace("parallelism: 2", "parallelism: two"));
    assert!(wrong_type.contains("spec.parallelism: 'two' is not of type 'integer'"), "{wrong_type}");
    assert_eq!(
        faults(JOB.replace("kind: Job", "kind: Pod")),
        "expected a Job of batch/v1, found ('batch/v1', 'Pod')\n"
    );
    assert_eq!(faults(format!("{JOB}---\n{JOB}")), "expected one resource, found 2\n");
}
