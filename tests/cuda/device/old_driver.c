/* SPDX-License-Identifier: BSD-3-Clause */
/* A library that calls itself a driver of CUDA 11.8: what tutti makes of one that is too old. */

int cuDriverGetVersion(int *version) __attribute__((visibility("default")));
int cuDriverGetVersion(int *version)
{
    *version = 11080;
    return 0;
}
