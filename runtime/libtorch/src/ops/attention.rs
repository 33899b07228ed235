//! Attention with libtorch's own operator, whose fused kernels do not store the scores. They take four dimensions; with
//! any other number, and in f32 on a CUDA device, the operator is two to three times as slow as the products written out.

use tch::{Device, Kind, TchError, Tensor};

/// The most scores that are stored, in f32 on a device: 256 MiB.
const SCORES_MAX: i64 = 1 << 26;

/// Computes softmax(q · kᵀ · scale + mask) · v; the mask broadcasts to the scores.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, scale: f64) -> Result<Tensor, TchError> {
    let mask = mask.map(|mask| fit_mask(mask, q, k)).transpose()?;
    if q.dim() != 4 || is_faster_in_parts(q, k, v) {
        let scores = scores(q, k, scale)?;
        let scores = mask.map_or_else(|| Ok(scores.shallow_clone()), |mask| scores.f_add(&mask))?;
        return scores.f_softmax(-1, q.kind())?.f_matmul(v);
    }
    let [q, k, v] = [with_dense_rows(q)?, with_dense_rows(k)?, with_dense_rows(v)?];
    Tensor::f_scaled_dot_product_attention(&q, &k, &v, mask, 0.0, false, scale, false)
}

/// Returns q · kᵀ · scale. The product of batches of matrices multiplies by the scale itself.
fn scores(q: &Tensor, k: &Tensor, scale: f64) -> Result<Tensor, TchError> {
    let (mut size, other) = (q.size(), k.size());
    let transposed = k.f_transpose(-2, -1)?;
    if q.dim() < 3 || size[..size.len() - 2] != other[..other.len() - 2] {
        return q.f_mul_scalar(scale)?.f_matmul(&transposed);
    }
    let batches: i64 = size[..size.len() - 2].iter().product();
    let flat = |x: &Tensor| x.f_reshape([batches, x.size()[x.dim() - 2], x.size()[x.dim() - 1]]);
    let [q, transposed] = [flat(q)?, flat(&transposed)?];
    let nothing = Tensor::f_empty([1, 1, 1], (q.kind(), q.device()))?;
    let last = size.len() - 1;
    size[last] = transposed.size()[2];
    nothing.f_baddbmm(&q, &transposed, 0.0, scale)?.f_view(&size[..])
}

/// Returns whether libtorch's kernel takes longer than the products.
fn is_faster_in_parts(q: &Tensor, k: &Tensor, v: &Tensor) -> bool {
    let rows = |x: &Tensor| x.size()[x.dim() - 2];
    let scores = q.size()[..q.dim() - 1].iter().product::<i64>().saturating_mul(rows(k));
    let is_recorded = [q, k, v].iter().any(|x| x.requires_grad());
    q.kind() == Kind::Float && q.device() != Device::Cpu && !is_recorded && scores <= SCORES_MAX
}

/// Converts the mask to the form that the kernels need: the type and the number of dimensions of q, and one column for
/// each row of k.
fn fit_mask(mask: &Tensor, q: &Tensor, k: &Tensor) -> Result<Tensor, TchError> {
    let mut size = vec![1; q.dim().saturating_sub(mask.dim())];
    size.extend(mask.size());
    let mask = mask.f_to_kind(q.kind())?.f_reshape(&size[..])?;
    let columns = size.len() - 1;
    size[columns] = k.size()[k.dim() - 2];
    with_dense_rows(&mask.f_expand(&size[..], false)?)
}

/// Returns the tensor with contiguous rows, as the kernels require.
fn with_dense_rows(x: &Tensor) -> Result<Tensor, TchError> {
    if x.stride().last() == Some(&1) { Ok(x.shallow_clone()) } else { x.f_contiguous() }
}

#[cfg(test)]
mod tests {
    use flagperf_onnx::{DType, Graph, GraphBuilder, Tensor, layers};
    use flagperf_onnx_exec::{Executor, ReferenceOps, TensorOps};
    use tch::Device;

    use crate::ops::TorchOps;

    /// Builds attention over windows, in five dimensions.
    fn windows(dtype: DType, mask: &str) -> Graph {
        let mut g = GraphBuilder::new("windows");
        let mut input = |name: &str, sizes: &str| g.input(name, format!("{sizes},{dtype}").parse().unwrap()).unwrap();
        let [q, k, v] = [("q", "N,4,2,5,8"), ("k", "N,4,2,5,8"), ("v", "N,4,2,5,6")].map(|(name, s)| input(name, s));
        let mask = input("mask", mask);
        let (past, heads, scale) = (None, None, Some(0.3));
        let operands = layers::Attention { q: &q, k: &k, v: &v, mask: Some(&mask), past, heads, scale, causal: false };
        let [y, ..] = layers::attention(&mut g, "y", operands).unwrap();
        g.output("y", &y).unwrap();
        g.finish().unwrap()
    }

    /// Builds attention as exporters write it, with k in the layout `N,S,H,E`.
    fn graph(dtype: DType, mask: Option<&str>) -> Graph {
        let mut g = GraphBuilder::new("attention");
        let input = |g: &mut GraphBuilder, name: &str, sizes: &str| {
            g.input(name, format!("{sizes},{dtype}").parse().unwrap()).unwrap()
        };
        let [q, k, v] = [("q", "N,2,5,8"), ("k", "N,7,2,8"), ("v", "N,2,7,6")].map(|(name, s)| input(&mut g, name, s));
        let transposed = layers::transpose(&mut g, "transposed", &k, &[0, 2, 3, 1]).unwrap();
        let scores = layers::matmul(&mut g, "scores", &q, &transposed).unwrap();
        let mut scores = layers::scale(&mut g, "scaled", &scores, 0.3).unwrap();
        if let Some(mask) = mask {
            let mask = input(&mut g, "mask", mask);
            scores = layers::add(&mut g, "masked", &scores, &mask).unwrap();
        }
        let weights = layers::softmax(&mut g, "weights", &scores, -1).unwrap();
        let y = layers::matmul(&mut g, "y", &weights, &v).unwrap();
        g.output("y", &y).unwrap();
        g.finish().unwrap()
    }

    fn inputs(graph: &Graph) -> Vec<Tensor> {
        let input = |(seed, spec): (usize, &flagperf_onnx::TensorSpec)| {
            let shape: Vec<usize> = spec.dims.iter().map(|dim| dim.fixed().unwrap_or(3)).collect();
            let values = (0..shape.iter().product::<usize>()).map(|i| ((i * i + 7 * seed) as f32 * 0.37).sin() * 2.0);
            Tensor::from_vec(&shape[..], values.collect::<Vec<f32>>()).unwrap().cast(spec.dtype)
        };
        graph.inputs.iter().map(|info| &info.spec).enumerate().map(input).collect()
    }

    fn cpu_ops(channels_last: bool) -> TorchOps {
        TorchOps { channels_last, ..TorchOps::on(Device::Cpu) }
    }

    #[test]
    fn attention_matches_the_reference_in_every_type_with_every_mask() {
        let masks = [
            None,
            Some("N,1,1,7"),
            Some("N,2,5,7"),
            Some("2,5,7"),
            Some("5,1"),
            Some("7"),
            Some("1"),
            Some("2,1,2,5,7"),
        ];
        for (dtype, bound) in [(DType::F64, 1e-12), (DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)] {
            let windows = ["4,2,5,5", "2,5,5", "N,4,1,5,5"].map(|mask| (Some(mask), windows(dtype, mask)));
            for (mask, graph) in masks.map(|mask| (mask, graph(dtype, mask))).into_iter().chain(windows) {
                let inputs = inputs(&graph);
                let expected = Executor::load(&graph, ReferenceOps).unwrap().run_host(&inputs).unwrap().remove(0);
                for ops in [cpu_ops(false), cpu_ops(true)] {
                    let actual = Executor::load(&graph, ops).unwrap().run_host(&inputs).unwrap().remove(0);
                    assert_eq!(actual.spec(), expected.spec());
                    for (a, e) in actual.to_f64().into_iter().zip(expected.to_f64()) {
                        assert!((a - e).abs() <= bound * e.abs().max(1.0), "{dtype} {mask:?}: {a} instead of {e}");
                    }
                }
            }
        }
    }

    /// For a fully masked row, only libtorch's own operator returns zeros; a softmax returns NaN.
    #[test]
    fn attention_in_a_graph_runs_as_libtorchs_own_operator() {
        let graph = graph(DType::F32, Some("5,7"));
        let mut inputs = inputs(&graph);
        inputs[3] = Tensor::from_vec([5, 7], vec![f32::NEG_INFINITY; 35]).unwrap();
        let ops = cpu_ops(false);
        let merged = Executor::load(&graph, cpu_ops(false)).unwrap().run_host(&inputs).unwrap().remove(0);
        assert_eq!(merged.to_f64(), vec![0.0; merged.len()]);
        let masked = ops.softmax(&ops.upload(&inputs[3]).unwrap(), 1, false).unwrap();
        assert!(ops.download(&masked, DType::F32).unwrap().to_f64().iter().all(|x| x.is_nan()));
    }
}
