/* both.h - functions that run on the host and, in CUDA sources, on the device too. */
#ifndef HR_BOTH_H
#define HR_BOTH_H

#ifdef __CUDACC__
#define HR_BOTH __host__ __device__
#else
#define HR_BOTH
#endif

#endif
