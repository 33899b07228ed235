//! `flagperf serve --result`: the model of a result, as it was measured.

use serde_json::json;

use crate::server::Server;
use crate::support::{program, results};

#[test]
fn the_model_of_a_result_is_served_and_each_answer_names_the_record() {
    let checkout = results::checkout();
    let (result, digest) = results::run(checkout.path(), &[]);
    let folder = result.to_str().unwrap();
    let server = Server::with(checkout.path(), &["--result", folder]);
    let metadata = server.get("/v2/models/tiny");
    assert_eq!(metadata.status, 200, "{metadata:?}");
    let input = metadata.json()["inputs"][0].clone();
    let shape: Vec<i64> = input["shape"].as_array().unwrap().iter().map(|size| size.as_i64().unwrap().max(1)).collect();
    let count = usize::try_from(shape.iter().product::<i64>()).unwrap();
    let tensor =
        json!({"name": input["name"], "shape": shape, "datatype": input["datatype"], "data": vec![0.5; count]});
    let answer = server.infer("tiny", &json!({"inputs": [tensor]}));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.headers.contains(&format!("flagperf-record: {digest}\r\n")), "{}", answer.headers);
    drop(server);

    let refused = || {
        let output = program::flagperf(checkout.path(), &["serve", "--result", folder, "--http", "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let files = std::fs::read_dir(&result).unwrap().flatten().map(|entry| entry.path());
    let onnx = files.filter(|path| path.extension().is_some_and(|ext| ext == "onnx")).min().expect("an ONNX file");
    let mut bytes = std::fs::read(&onnx).unwrap();
    bytes.push(0);
    std::fs::write(&onnx, bytes).unwrap();
    assert!(refused().contains("is not the file that was measured: its SHA-256 is `"), "{}", refused());
    std::fs::remove_file(&onnx).unwrap();
    assert!(refused().contains("which the record names, cannot be read: "), "{}", refused());
    let record = result.join("record.json");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replacen("tiny", "tyni", 1)).unwrap();
    assert!(refused().contains("`record.json` is not the file that `manifest.json` lists"), "{}", refused());
}
