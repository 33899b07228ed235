//! What a server must know of the graph before it is loaded.

use std::path::Path;

use flagperf_core::tensor::DType;
use flagperf_onnx::{Graph, ValueInfo, read_onnx};

use super::{ATTENTION_MASK, FIRST, INPUT_IDS, LOGITS, PAST, POSITION_IDS, PRESENT, TOKEN};

/// The sizes of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderGraph {
    /// The places of the cache: the most tokens of a prompt and its answer.
    pub length: usize,
    /// The number of tokens; `None` if the graph does not say.
    pub vocabulary: Option<usize>,
    /// Whether the graph returns the scores of all tokens instead of the most probable token.
    pub has_logits: bool,
}

impl DecoderGraph {
    /// Reads the graph of a file.
    ///
    /// # Errors
    /// When it cannot be read or is no decoder; the message says what is missing.
    pub fn read(file: &Path) -> Result<Self, String> {
        let graph = read_onnx(file).map_err(|error| error.to_string())?;
        Self::of(&graph)
            .map_err(|reason| format!("`{}` is not the decoder of a language model: {reason}", file.display()))
    }

    fn of(graph: &Graph) -> Result<Self, String> {
        for (name, rank) in [(INPUT_IDS, 2), (POSITION_IDS, 2), (ATTENTION_MASK, 2), (FIRST, 1)] {
            let input = find(&graph.inputs, name).ok_or_else(|| format!("it has no input `{name}`"))?;
            if input.spec.dtype != DType::I64 || input.spec.dims.len() != rank {
                return Err(format!("its input `{name}` is `{}`, not one of rank {rank} and type i64", input.spec));
            }
        }
        let mask = find(&graph.inputs, ATTENTION_MASK).and_then(|mask| mask.spec.dims[1].fixed());
        let length = mask.ok_or_else(|| {
            format!("the second dimension of `{ATTENTION_MASK}` is open, but the cache must have a fixed length")
        })?;
        check_states(graph)?;
        let logits = find(&graph.outputs, LOGITS);
        if logits.is_none() && find(&graph.outputs, TOKEN).is_none() {
            return Err(format!("it has neither the output `{TOKEN}` nor `{LOGITS}`"));
        }
        let scores = logits.and_then(|logits| logits.spec.dims.last()?.fixed());
        Ok(DecoderGraph { length, vocabulary: scores.or_else(|| embedded_tokens(graph)), has_logits: logits.is_some() })
    }
}

fn find<'a>(infos: &'a [ValueInfo], name: &str) -> Option<&'a ValueInfo> {
    infos.iter().find(|info| info.name == name)
}

/// Checks that every other input is a state that the graph returns.
fn check_states(graph: &Graph) -> Result<(), String> {
    let known = [INPUT_IDS, POSITION_IDS, ATTENTION_MASK, FIRST];
    let mut states = 0;
    for input in graph.inputs.iter().filter(|input| !known.contains(&input.name.as_str())) {
        let state = input.name.strip_prefix(PAST).ok_or_else(|| format!("its input `{}` is unknown", input.name))?;
        let output = format!("{PRESENT}{state}");
        find(&graph.outputs, &output).ok_or_else(|| format!("`{}` has no output `{output}`", input.name))?;
        states += 1;
    }
    if states == 0 { Err(format!("it has no input that begins with `{PAST}`")) } else { Ok(()) }
}

/// Returns the rows of the table from which the vectors of the tokens are taken.
fn embedded_tokens(graph: &Graph) -> Option<usize> {
    let gathers = graph.nodes.iter().filter(|node| node.op == "Gather");
    let table = gathers
        .filter(|node| node.inputs.get(1).is_some_and(|input| input == INPUT_IDS))
        .find_map(|node| graph.weights.get(node.inputs.first()?));
    table?.spec.dims.first()?.fixed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(inputs: &[(&str, &str)], outputs: &[(&str, &str)]) -> Graph {
        let infos = |infos: &[(&str, &str)]| {
            let info =
                |(name, spec): &(&str, &str)| ValueInfo { name: (*name).to_owned(), spec: spec.parse().unwrap() };
            infos.iter().map(info).collect()
        };
        Graph { inputs: infos(inputs), outputs: infos(outputs), ..Graph::default() }
    }

    const INPUTS: [(&str, &str); 5] = [
        ("input_ids", "N,S,i64"),
        ("position_ids", "N,S,i64"),
        ("attention_mask", "N,24,i64"),
        ("first", "N,i64"),
        ("past.0.key", "N,2,P,8,f32"),
    ];

    #[test]
    fn the_sizes_of_a_decoder_are_those_of_its_mask_and_its_scores() {
        let state = ("present.0.key", "N,2,24,8,f32");
        let greedy = DecoderGraph::of(&graph(&INPUTS, &[("token", "N,1,i64"), state])).unwrap();
        assert_eq!(greedy, DecoderGraph { length: 24, vocabulary: None, has_logits: false });
        let scoring = DecoderGraph::of(&graph(&INPUTS, &[state, ("logits", "N,1,50,f32")])).unwrap();
        assert_eq!(scoring, DecoderGraph { length: 24, vocabulary: Some(50), has_logits: true });
    }

    #[test]
    fn what_is_missing_is_named() {
        let outputs = [("token", "N,1,i64"), ("present.0.key", "N,2,24,8,f32")];
        for (inputs, outputs, expected) in [
            (&INPUTS[1..], &outputs[..], "it has no input `input_ids`"),
            (&INPUTS[..4], &outputs, "it has no input that begins with `past.`"),
            (&INPUTS, &outputs[..1], "`past.0.key` has no output `present.0.key`"),
            (&INPUTS, &outputs[1..], "it has neither the output `token` nor `logits`"),
        ] {
            assert_eq!(DecoderGraph::of(&graph(inputs, outputs)).unwrap_err(), expected);
        }
        let mut open = INPUTS;
        open[2].1 = "N,L,i64";
        assert!(DecoderGraph::of(&graph(&open, &outputs)).unwrap_err().contains("must have a fixed length"));
    }
}
