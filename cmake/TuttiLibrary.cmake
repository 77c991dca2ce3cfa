# SPDX-License-Identifier: BSD-3-Clause
# libtutti.so from all folders.
