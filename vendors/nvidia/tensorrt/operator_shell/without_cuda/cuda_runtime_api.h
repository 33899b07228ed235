// The names of CUDA that the headers of TensorRT use, where CUDA's own headers are not installed: the shell only passes
// streams on. Searched last, so that CUDA's header comes first.
#pragma once

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
