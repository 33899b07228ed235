//! Encryption, tokens, and results that are verified before they are served.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flagperf_serve::messages::ServerLiveRequest;
use nix::sys::stat::Mode;

use crate::grpc::{SERVICE, frame, rows as message};
use crate::server::{Server, rows, store};
use crate::support::{self, program, results, root};

/// The status of gRPC for a call without a token.
const UNAUTHENTICATED: i32 = 16;
const TOKEN: &str = "a-token-that-nobody-guesses";

fn write(path: &Path, text: &str, mode: Mode) -> String {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode.bits())).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Writes a certificate for localhost and its key. Returns their paths.
fn certificate(folder: &Path) -> [String; 2] {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = write(&folder.join("key.pem"), &made.signing_key.serialize_pem(), Mode::S_IRUSR | Mode::S_IWUSR);
    [write(&folder.join("certificate.pem"), &made.cert.pem(), Mode::from_bits_retain(0o644)), key]
}

/// Returns the message with which a server refuses to start.
fn refused(arguments: &[&str]) -> String {
    let store = store(&[("m", "")]);
    let begin = ["serve", "--model-store", store.path().to_str().unwrap(), "--http", "127.0.0.1:0", "--grpc", "none"];
    let output = program::flagperf(root(), &[&begin, arguments].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_a_token_only_health_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(&folder.path().join("tokens"), &format!("{TOKEN}\n"), Mode::S_IRUSR);
    let server = Server::of_store(store(&[("m", "")]), &["--token-file", &file]);
    let bearer = format!("Bearer {TOKEN}");
    let body = rows(&[[1.0; 3]]).to_string();
    for (headers, status) in [
        (vec![], 401),
        (vec![("Authorization", "Bearer another-token-than-that")], 401),
        (vec![("Authorization", "Basic abc")], 401),
        (vec![("Authorization", bearer.as_str())], 200),
    ] {
        let answer = server.request("POST", "/v2/models/m/infer", &headers, body.as_bytes());
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(status == 401, answer.headers.contains("www-authenticate: bearer"));
    }
    let statuses = ["/v2/health/live", "/v2/health/ready", "/metrics", "/v2", "/v2/models/m", "/nothing"];
    assert_eq!(statuses.map(|path| server.get(path).status), [200, 200, 401, 401, 401, 401]);
    let mut client = server.grpc();
    assert_eq!(client.call("ServerLive", &ServerLiveRequest {}).code, 0);
    assert_eq!(client.send("/grpc.health.v1.Health/Check", &[], vec![frame(&ServerLiveRequest {})]).unwrap().code, 0);
    let answer = client.infer(&message("m", &[[1.0; 3]]));
    assert_eq!((answer.code, answer.message.is_empty()), (UNAUTHENTICATED, false));
    let request = frame(&message("m", &[[1.0; 3]]));
    let answer = client.send(&format!("{SERVICE}ModelInfer"), &[("authorization", &bearer)], vec![request]);
    assert_eq!(answer.unwrap().code, 0);
}

#[test]
fn keys_and_tokens_that_others_may_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = certificate(folder.path());
    let tokens = write(&folder.path().join("tokens"), TOKEN, Mode::from_bits_retain(0o644));
    let error = refused(&["--token-file", &tokens]);
    assert!(error.contains("others may read it (mode 644): `chmod 600` it"), "{error}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let error = refused(&["--tls-certificate", &certificate, "--tls-key", &key]);
    assert!(error.contains("key.pem`: others may read it (mode 640)"), "{error}");
    fs::set_permissions(&certificate, fs::Permissions::from_mode(0o600)).unwrap();
    let error = refused(&["--tls-certificate", &certificate, "--tls-key", &certificate]);
    assert!(error.contains("it has no private key in PEM"), "{error}");
    let error = refused(&["--tls-certificate", &tokens, "--tls-key", &key]);
    assert!(error.contains("it has no certificate in PEM"), "{error}");
    let error = refused(&["--tls-key", &key]);
    assert!(error.contains("--tls-certificate <FILE>"), "{error}");
}

#[test]
fn both_protocols_are_encrypted_and_the_clients_of_triton_use_them() {
    let Some(python) = support::python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = certificate(folder.path());
    let file = write(&folder.path().join("tokens"), TOKEN, Mode::S_IRUSR);
    let arguments = ["--tls-certificate", &certificate, "--tls-key", &key, "--token-file", &file];
    let server = Server::of_store(store(&[("m", "")]), &arguments);
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let arguments = [&port(&server.address), &port(&server.grpc_address), &certificate, TOKEN];
    support::run_script(&python, "triton_client_tls.py", &arguments);
    // One that speaks plain HTTP gets no answer.
    assert!(server.raw(b"GET /v2 HTTP/1.1\r\nHost: t\r\n\r\n").is_none());
}

#[test]
fn a_result_is_served_with_verify_only_if_nothing_contradicts_it() {
    let checkout = results::checkout();
    let (result, _) = results::run(checkout.path(), &[]);
    let folder = result.to_str().unwrap();
    drop(Server::with(checkout.path(), &["--result", folder, "--verify"]));
    let log = fs::read_dir(&result).unwrap().flatten().map(|entry| entry.path());
    let log = log.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).min().expect("events");
    let mut text = fs::read(&log).unwrap();
    text.extend(b"{}\n");
    fs::write(&log, text).unwrap();
    let arguments = ["serve", "--result", folder, "--verify", "--http", "127.0.0.1:0", "--grpc", "none"];
    let output = program::flagperf(checkout.path(), &arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("is not confirmed by `flagperf verify`:\nWRONG  tiny:"), "{errors}");
    assert!(errors.contains(log.file_name().unwrap().to_str().unwrap()), "{errors}");
    drop(Server::with(checkout.path(), &["--result", folder]));
}
