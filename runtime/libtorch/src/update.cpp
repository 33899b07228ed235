// Updates parameters by an optimizer, all of them together: libtorch has kernels for lists of tensors.

#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace {

using at::Tensor;
using List = std::vector<Tensor>;

thread_local std::string last_error;

struct Numbers {
    const Tensor &learning_rate;
    const Tensor &mean_correction;
    const Tensor &square_correction;
    const Tensor &number;
    // Whether nothing changes, if that is possible: a number that is 0 if something does.
    std::optional<Tensor> skips;
};

// The mean of the gradients over the root of their mean square, both without the bias of their start. Updates both means.
List normalized(const List &gradients, const List &means, const List &squares, const double *moments, const Numbers &numbers) {
    at::_foreach_lerp_(means, gradients, 1.0 - moments[0]);
    at::_foreach_mul_(squares, moments[1]);
    at::_foreach_addcmul_(squares, gradients, gradients, 1.0 - moments[1]);
    List roots = at::_foreach_sqrt(squares);
    at::_foreach_div_(roots, numbers.square_correction);
    at::_foreach_add_(roots, moments[2]);
    at::_foreach_mul_(roots, numbers.mean_correction);
    return at::_foreach_div(means, roots);
}

void lamb(const List &parameters, const List &gradients, const List &means, const List &squares, const double *settings,
          const Numbers &numbers) {
    List steps = normalized(gradients, means, squares, settings + 1, numbers);
    Tensor rate = numbers.learning_rate.reshape({});
    if (settings[0] == 0.0) {
        at::_foreach_mul_(steps, rate);
    } else {
        at::_foreach_add_(steps, parameters, settings[0]);
        Tensor of_parameters = at::stack(at::_foreach_norm(parameters, 2));
        Tensor of_steps = at::stack(at::_foreach_norm(steps, 2));
        Tensor is_known = at::logical_and(of_parameters > 0, of_steps > 0);
        Tensor ratios = at::where(is_known, of_parameters / of_steps, at::ones_like(of_steps)) * rate;
        at::_foreach_mul_(steps, ratios.unbind());
    }
    at::_foreach_sub_(parameters, steps);
}

void rmsprop(const List &parameters, const List &gradients, const List &squares, const List &buffers, const double *settings,
             const Numbers &numbers) {
    List penalized = settings[0] == 0.0 ? gradients : at::_foreach_add(gradients, parameters, settings[0]);
    at::_foreach_mul_(squares, settings[1]);
    at::_foreach_addcmul_(squares, penalized, penalized, 1.0 - settings[1]);
    List roots = at::_foreach_sqrt(squares);
    at::_foreach_add_(roots, settings[2]);
    List steps = at::_foreach_div(penalized, roots);
    if (!buffers.empty()) {
        at::_foreach_mul_(buffers, settings[3]);
        at::_foreach_add_(buffers, steps);
        steps = buffers;
    }
    at::_foreach_sub_(parameters, at::_foreach_mul(steps, numbers.learning_rate.reshape({})));
}

void update(std::string_view rule, const double *settings, const Numbers &numbers, const List &parameters,
            const List &gradients, const List &first, const List &second) {
    List counts(parameters.size(), numbers.number);
    if (rule == "sgd") {
        at::_fused_sgd_(parameters, gradients, first, settings[0], settings[1], numbers.learning_rate, 0.0,
                        settings[2] != 0.0, false, false, {}, numbers.skips);
    } else if (rule == "adam") {
        at::_fused_adam_(parameters, gradients, first, second, {}, counts, numbers.learning_rate, settings[1],
                         settings[2], settings[0], settings[3], false, false, {}, numbers.skips);
    } else if (rule == "adamw") {
        at::_fused_adamw_(parameters, gradients, first, second, {}, counts, numbers.learning_rate, settings[1],
                          settings[2], settings[0], settings[3], false, false, {}, numbers.skips);
    } else if (numbers.skips) {
        throw std::invalid_argument("updates that may be skipped");
    } else if (rule == "lamb") {
        lamb(parameters, gradients, first, second, settings, numbers);
    } else if (rule == "rmsprop") {
        rmsprop(parameters, gradients, first, second, settings, numbers);
    } else {
        throw std::invalid_argument("optimizer " + std::string(rule));
    }
}

} // namespace

extern "C" {

// Updates `count` parameters in place by an optimizer, whose name has `length` characters and which has these `settings`:
// those of `UpdateRule::settings`. `numbers` are the learning rate, the two corrections and the number of the update; `changes`
// is null, or states whether anything changes, which SGD, Adam and AdamW support. `tensors` are the parameters, their gradients,
// and `memory` lists of what the optimizer remembers. Returns null, or the reason of a failure, which is valid until the next
// call on this thread.
const char *flagperf_update(const char *name, size_t length, const double *settings, const Tensor *const *numbers,
                            const Tensor *changes, const Tensor *const *tensors, size_t count, size_t memory) {
    try {
        auto list = [&](size_t i) {
            List list;
            for (size_t j = 0; j < count && i < 2 + memory; j++) {
                list.push_back(*tensors[i * count + j]);
            }
            return list;
        };
        std::optional<Tensor> skips;
        if (changes != nullptr) {
            skips = at::logical_not(*changes).to(at::kFloat);
        }
        List parameters = list(0), gradients = list(1);
        for (size_t i = 0; i < count; i++) {
            // The kernels take the elements of all lists in the order of their memory.
            if (gradients[i].strides() != parameters[i].strides()) {
                gradients[i] = at::empty_like(parameters[i]).copy_(gradients[i]);
            }
        }
        update({name, length}, settings, {*numbers[0], *numbers[1], *numbers[2], *numbers[3], skips}, parameters, gradients,
               list(2), list(3));
        return nullptr;
    } catch (const std::exception &error) {
        last_error = error.what();
        return last_error.c_str();
    }
}
}
